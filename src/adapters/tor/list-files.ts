import { randomBytes } from 'node:crypto';
import { mkdir, open, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { OperatorError } from '../../config/operator-error.js';
import { readOperatorFile } from '../../config/operator-file.js';
import { fileStamp, isTransientFileError } from '../files/file-stamp.js';
import { ExitListRejected, type ExitSource, maxListBytes, type SourceContent } from './exit-source.js';
import { decodeList } from './parse-list.js';

/** The sources that are files. Detects which of these files have changed since the last check. */
export class ListFiles {
  readonly #sources: readonly ExitSource[];
  readonly #stamps = new Map<string, string | null>();

  constructor(sources: readonly ExitSource[]) {
    this.#sources = sources;
  }

  /** Returns the files that were replaced or written since the last call. The first call returns all files. */
  async changed(): Promise<ExitSource[]> {
    const changed: ExitSource[] = [];
    for (const source of this.#sources) {
      if (!('file' in source.location)) continue;
      const stamp = await fileStamp(source.location.file);
      if (this.#stamps.get(source.id) === stamp) continue;
      this.#stamps.set(source.id, stamp);
      changed.push(source);
    }
    return changed;
  }
}

/**
 * Reads a list from a file.
 * @throws ExitListRejected if the file cannot be read, or is not UTF-8
 */
export async function readListFile(file: string): Promise<SourceContent> {
  try {
    const bytes = await readOperatorFile(file, 'The Tor exit list', maxListBytes);
    // If the file was removed after it was read, the list is still valid, but its modification time is unknown.
    const written = await stat(file).then(
      ({ mtime }) => mtime.toISOString(),
      () => null,
    );
    return { text: decodeList(bytes), etag: null, lastModified: null, writtenAt: written };
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    throw new ExitListRejected('unreadable', error.message.replace(/^The Tor exit list /, '').replace(/\.$/, ''), {
      cause: error,
    });
  }
}

const maxSnapshotBytes = 64 * 1024 * 1024;

/**
 * The file that stores the last valid list of each source, so that a gateway can start without a network. The file is
 * replaced atomically, so a crash leaves the previous file.
 */
export class SnapshotFile {
  readonly #file: string;
  #stamp: string | null = null;

  constructor(file: string) {
    this.#file = file;
  }

  /**
   * Returns the text of the file if the file has changed since this object last read or wrote it. Null if the file is
   * unchanged or cannot be inspected, for example because it does not exist.
   * @throws OperatorError if the file has changed but cannot be read. After a temporary error, the next call reads the
   * file again. After any other error, the file is not read again until it changes
   */
  async readChanged(): Promise<string | null> {
    const stamp = await fileStamp(this.#file);
    if (stamp === null || stamp === this.#stamp) return null;
    try {
      const bytes = await readOperatorFile(this.#file, 'The snapshot of the Tor exit list', maxSnapshotBytes);
      this.#stamp = stamp;
      return bytes.toString('utf8');
    } catch (error) {
      if (!isTransientFileError(error)) this.#stamp = stamp;
      throw error;
    }
  }

  /**
   * Replaces the file atomically.
   * @throws the file system's error; the previous file then remains
   */
  async write(text: string): Promise<void> {
    await mkdir(path.dirname(this.#file), { recursive: true });
    const draft = `${this.#file}.${randomBytes(6).toString('hex')}.tmp`;
    try {
      const handle = await open(draft, 'wx', 0o644);
      try {
        await handle.writeFile(text);
        await handle.sync();
      } finally {
        await handle.close();
      }
      await rename(draft, this.#file);
    } catch (error) {
      await rm(draft, { force: true });
      throw error;
    }
    this.#stamp = await fileStamp(this.#file);
  }
}
