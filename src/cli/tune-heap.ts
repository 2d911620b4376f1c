import { setFlagsFromString } from 'node:v8';

const flags = [
  // By how much of what lives garbage may make the heap larger before all of it is collected. On a machine with much memory
  // V8 would wait until the heap is several times as large as what lives.
  '--heap-growing-percent=30',
  // In a quiet time V8 would collect three times to give memory back, and drop the code of what is not alive then: all that
  // a request is made of. The first thousand requests after some seconds of silence then cost two to eight times as much.
  // This puts it off for as long as the flag can say, which is 24 days.
  '--gc-memory-reducer-start-delay-ms=2147483647',
  // undici's parser is WebAssembly, and large. V8 would optimise it when it has been used for some hundred answers, as a
  // warm-up does, and take 30 MB for that: whatever is then allocated for longer keeps malloc's heap that large for good.
  '--no-wasm-tier-up',
  '--no-wasm-dynamic-tiering',
];

/** For Node 24 and later, which has Maglev between the interpreter and TurboFan. Requests cost the same with these. */
const maglevFlags = [
  // It works on many functions at once when the first load comes. With what each of them calls put into it, that took 5 MB
  // more for a moment, and malloc's heap stays as large.
  '--no-maglev-inlining',
  // Sparkplug translates, without optimising, what Maglev is about to compile anyway, and both are kept: 5 MB.
  '--no-sparkplug',
];
const firstNodeWithMaglev = 24;

/**
 * Tells V8 when a gateway's heap is collected, and what not to compile. A later V8 that does not know a flag says so
 * and goes on as it is.
 */
export function tuneHeap(): void {
  const hasMaglev = Number.parseInt(process.versions.node, 10) >= firstNodeWithMaglev;
  for (const flag of hasMaglev ? [...flags, ...maglevFlags] : flags) setFlagsFromString(flag);
}
