import { ChainedLog } from '../../src/telemetry/chained-log.js';
import { logSecretOf } from '../../src/telemetry/chain.js';
import type { ChainedLogOptions } from '../../src/telemetry/line-writer/log-options.js';

/** The secret of all test logs. */
export const testSecret = logSecretOf(Buffer.from('a secret of the tests alone'));

/** Opens a chained log with the test secret; it checks for a rename only when the test requests that. */
export function openLog(destination: string, options: Partial<ChainedLogOptions> = {}): ChainedLog {
  return new ChainedLog({
    destination,
    secret: testSecret,
    environment: 'live',
    now: () => Date.now(),
    onReopenFailure: () => undefined,
    renameMilliseconds: 1_000_000,
    ...options,
  });
}

/** Waits for a condition, by default for up to 30 s. That is enough for a busy machine if no process has to start. */
export async function until(condition: () => boolean, seconds = 30): Promise<void> {
  const deadline = performance.now() + seconds * 1000;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error('what was waited for did not come');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
