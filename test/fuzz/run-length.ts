// Within the suite: few cases of a seed that stays. `npm run fuzz`: a minute of a new seed, which is printed.

/** How long a run goes on, in seconds; null within the suite, which has so many cases. */
export const seconds = process.env.FUZZ_SECONDS === undefined ? null : Number(process.env.FUZZ_SECONDS);
/** What the cases are made of. */
export const seed = Number(process.env.FUZZ_SEED ?? (seconds === null ? 20261120 : Date.now() % 2 ** 32));
