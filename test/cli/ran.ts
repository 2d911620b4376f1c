import { run } from '../../src/cli/run.js';

/** The exit status of a command, and its output. */
export interface Outcome {
  readonly status: number;
  readonly out: string;
  readonly err: string;
}

/** Runs a command in this process. */
export async function ran(...args: readonly string[]): Promise<Outcome> {
  let [out, err] = ['', ''];
  const status = await run(args, { out: (text) => (out += text), err: (text) => (err += text) });
  return { status, out, err };
}
