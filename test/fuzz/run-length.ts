// In the test suite: few cases with a fixed seed. `npm run fuzz`: one minute with a new seed, which is printed.

/** Length of a run in seconds; null in the suite, which has a fixed number of cases. */
export const seconds = process.env.FUZZ_SECONDS === undefined ? null : Number(process.env.FUZZ_SECONDS);
/** The seed of the cases. */
export const seed = Number(process.env.FUZZ_SEED ?? (seconds === null ? 20261120 : Date.now() % 2 ** 32));
