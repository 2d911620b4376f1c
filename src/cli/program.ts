import { once } from 'node:events';
import { tuneHeap } from './tune-heap.js';

// Call this before the other modules load. V8 uses the flag for the heap growth at each garbage collection, to set its
// next heap limit. The last collection before the first requests happens while modules load.
if (process.argv[2] === 'gateway') tuneHeap();
const { run } = await import('./run.js');

process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  // EPIPE means that the reader, such as `head`, has closed the pipe: exit without a message.
  if (error.code !== 'EPIPE') {
    const lost = 'output may be lost. If a created key was not shown, reset or revoke it.';
    process.stderr.write(`Cannot write to standard output (${error.code ?? error.message}): ${lost}\n`);
  }
  process.exit(1);
});

process.exitCode = await run(process.argv.slice(2), {
  out: (text) => process.stdout.write(text),
  err: (text) => process.stderr.write(text),
  isTerminal: process.stderr.isTTY,
  drained: async () => {
    if (process.stdout.writableNeedDrain) await once(process.stdout, 'drain');
  },
});
