import { constants } from 'node:fs';
import { mkdir, open } from 'node:fs/promises';
import path from 'node:path';
import { NotARegularFile } from '../log-file.js';
import type { CheckpointDestination } from './checkpoint-log.js';

const lineEnd = 0x0a;
/**
 * Flags for opening the file. It is opened for reading too, to check whether its last line is complete. Without
 * O_NONBLOCK, opening a FIFO would wait for another process.
 */
const appending = constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | constants.O_NONBLOCK;

/**
 * Appends checkpoints (signed states of the log) to a file, one JSON object per line. Several processes can write to
 * the same file.
 */
export class CheckpointFile implements CheckpointDestination {
  readonly name: string;

  constructor(file: string) {
    this.name = file;
  }

  async keep(line: string): Promise<string | null> {
    try {
      await append(this.name, line);
      return null;
    } catch (error) {
      return problemOf(error);
    }
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

async function append(file: string, line: string): Promise<void> {
  await mkdir(path.dirname(file), { recursive: true });
  const handle = await open(file, appending, 0o640);
  try {
    const stats = await handle.stat();
    if (!stats.isFile()) throw new NotARegularFile(stats);
    const last = stats.size === 0 ? null : await handle.read(Buffer.alloc(1), 0, 1, stats.size - 1);
    // Terminates the incomplete line of a killed process. Otherwise the next line would be appended to it.
    const isOpen = last !== null && last.buffer[0] !== lineEnd;
    await handle.appendFile(`${isOpen ? '\n' : ''}${line}\n`);
    await handle.datasync();
  } finally {
    await handle.close();
  }
}

function problemOf(error: unknown): string {
  if (error instanceof NotARegularFile) return error.message;
  return (error as NodeJS.ErrnoException).code ?? String(error);
}
