import { setFlagsFromString } from 'node:v8';

const flags = [
  // Starts a full collection when garbage has grown the heap by this percentage of the live data. On a machine with
  // much memory, V8 would otherwise wait until the heap is several times as large as the live data.
  '--heap-growing-percent=30',
  // In an idle process, V8 would run three garbage collections to release memory, and would discard the compiled code
  // of the request path. The first thousand requests after the idle period would then cost two to eight times as much.
  // This flag delays the three collections by 24 days, its maximum.
  '--gc-memory-reducer-start-delay-ms=2147483647',
  // undici's parser is a large WebAssembly module. After some hundred responses, for example in a warm-up, V8 would
  // optimise the module, which takes 30 MB. Malloc's heap would then keep that size permanently, because of later
  // long-lived allocations.
  '--no-wasm-tier-up',
  '--no-wasm-dynamic-tiering',
];

/** Flags for Node 24 and later, whose V8 has the Maglev compiler. They save memory without making requests slower. */
const maglevFlags = [
  // During the first requests, Maglev compiles many functions at once. With inlining, this would temporarily take 5 MB
  // more, and malloc's heap would keep that size.
  '--no-maglev-inlining',
  // Sparkplug compiles code without optimisation, and Maglev compiles the same code soon after. Storing both versions
  // takes 5 MB.
  '--no-sparkplug',
];
const firstNodeWithMaglev = 24;

/**
 * Sets V8 flags for the heap growth and the compilers of a gateway process. A V8 version that does not know a flag
 * prints a warning and ignores the flag.
 */
export function tuneHeap(): void {
  const hasMaglev = Number.parseInt(process.versions.node, 10) >= firstNodeWithMaglev;
  for (const flag of hasMaglev ? [...flags, ...maglevFlags] : flags) setFlagsFromString(flag);
}
