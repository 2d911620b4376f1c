import { mkdtemp, open, rm, type FileHandle } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';

const flushBytes = 256 * 1024;

/**
 * Copies the valid lines to a temporary file, so that exactly the checked lines are imported. The input could change
 * after the check, and a pipe cannot be read twice. The temporary file is unlinked while open, so it disappears with
 * the process.
 */
export class Spool {
  readonly #file: FileHandle;
  #waiting: Buffer[] = [];
  #size = 0;

  private constructor(file: FileHandle) {
    this.#file = file;
  }

  static async open(): Promise<Spool> {
    const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-import-'));
    try {
      return new Spool(await open(path.join(directory, 'lines'), 'wx+', 0o600));
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  }

  /** Adds a line. Without an argument, adds an empty line, so that later lines keep their numbers. */
  async add(line = ''): Promise<void> {
    const bytes = Buffer.from(`${line}\n`);
    this.#waiting.push(bytes);
    this.#size += bytes.length;
    if (this.#size >= flushBytes) await this.#flush();
  }

  /** Reads all added lines from the beginning. */
  async read(): Promise<AsyncIterable<Buffer>> {
    await this.#flush();
    return this.#file.createReadStream({ start: 0, autoClose: false, highWaterMark: flushBytes });
  }

  close(): Promise<void> {
    return this.#file.close();
  }

  async #flush(): Promise<void> {
    const bytes = Buffer.concat(this.#waiting);
    [this.#waiting, this.#size] = [[], 0];
    for (let written = 0; written < bytes.length;) {
      written += (await this.#file.write(bytes, written)).bytesWritten;
    }
  }
}
