import { randomBytes } from 'node:crypto';
import { mkdir, open, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { readOperatorFile } from '../../config/operator-file.js';
import { fileStamp } from '../files/file-stamp.js';
import { mayPass } from '../files/may-pass.js';

const maxSnapshotBytes = 64 * 1024 * 1024;

/** The last good list on disk, for a start without network. It is replaced whole: a crash leaves the one before. */
export class SnapshotFile {
  readonly #file: string;
  #stamp: string | null = null;

  constructor(file: string) {
    this.#file = file;
  }

  /**
   * The text of the file, where it is not the one that was last read or written here; else null.
   * @throws OperatorError where it is there and cannot be read; once, unless that may pass
   */
  async readChanged(): Promise<string | null> {
    const stamp = await fileStamp(this.#file);
    if (stamp === null || stamp === this.#stamp) return null;
    try {
      const bytes = await readOperatorFile(this.#file, 'The snapshot of the Tor exit list', maxSnapshotBytes);
      this.#stamp = stamp;
      return bytes.toString('utf8');
    } catch (error) {
      if (!mayPass(error)) this.#stamp = stamp;
      throw error;
    }
  }

  /** @throws the file system's error; then the file is as it was */
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
