import { once } from 'node:events';
import { fstatSync, writeSync } from 'node:fs';
import { tuneHeap } from './tune-heap.js';

// Set the V8 flags before the other modules load. V8 uses the flag for heap growth only when it sets the next heap
// limit, at a garbage collection. The last collection before the first requests happens while modules load. A flag that
// is set later would miss that collection.
if (process.argv[2] === 'gateway') tuneHeap();
const { run } = await import('./run.js');

function reportAndExit(error: NodeJS.ErrnoException): never {
  // EPIPE means that the reader, such as `head`, has closed the pipe: exit without a message.
  if (error.code !== 'EPIPE') {
    const lost = 'output may be lost. If a created key was not shown, reset or revoke it.';
    process.stderr.write(`Cannot write to standard output (${error.code ?? error.message}): ${lost}\n`);
  }
  process.exit(1);
}

/** Writes all bytes to a file. On a nearly full disk, a write can be partial, and Node's own stream ignores this. */
function writeToFile(text: string): void {
  const bytes = Buffer.from(text);
  try {
    for (let written = 0; written < bytes.length;) written += writeSync(stdout, bytes, written);
  } catch (error) {
    reportAndExit(error as NodeJS.ErrnoException);
  }
}

const stdout = 1;
process.stdout.on('error', reportAndExit);
const isFile = fstatSync(stdout).isFile();

process.exitCode = await run(process.argv.slice(2), {
  out: (text) => {
    if (isFile) writeToFile(text);
    else process.stdout.write(text);
  },
  err: (text) => process.stderr.write(text),
  isTerminal: process.stderr.isTTY,
  drained: async () => {
    if (process.stdout.writableNeedDrain) await once(process.stdout, 'drain');
  },
});
