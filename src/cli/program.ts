import { once } from 'node:events';
import { tuneHeap } from './tune-heap.js';

// Before the rest is loaded: V8 sets the next bound when it collects, and the last time before the first requests is while it loads.
if (process.argv[2] === 'gateway') tuneHeap();
const { run } = await import('./run.js');

process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  // Whoever reads has gone, as `head` does when it has seen enough: there is nobody to tell.
  if (error.code !== 'EPIPE') {
    const lost =
      'what was printed may be lost. A key that was made and that nobody has seen is to be reset or revoked.';
    process.stderr.write(`Standard output cannot be written (${error.code ?? error.message}): ${lost}\n`);
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
