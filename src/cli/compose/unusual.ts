import type { Config } from '../../config/schema.js';
import { readSecretLines } from '../../config/operator-file.js';
import { OperatorError } from '../../config/operator-error.js';
import type { StartUnusual } from '../../registry/start-registry.js';
import type { WebhookTarget } from '../../registry/unusual/webhooks.js';
import { systemClock } from './system-clock.js';

const what = 'The secret of a webhook';
const secretForm = /^whsec_[A-Za-z0-9+/]{32,}={0,2}$/;
const minSecretBytes = 24;

/**
 * Reads the secrets with which a webhook's requests are signed.
 * @throws OperatorError
 */
export async function readWebhookSecrets(file: string): Promise<Buffer[]> {
  return (await readSecretLines(file, what, minSecretBytes)).map((line) => {
    const text = line.toString('latin1');
    if (!secretForm.test(text))
      throw new OperatorError(
        `${what} ${file} must be "whsec_" followed by at least ${minSecretBytes} bytes in base64. To create a secret, run: ` +
          `echo "whsec_$(openssl rand -base64 32)" > ${file}`,
      );
    return Buffer.from(text.slice('whsec_'.length), 'base64');
  });
}

/** The rules that report unusual use of keys, and how to close the connections to the webhook targets. */
interface OpenedUnusual {
  readonly unusual: StartUnusual;
  close(): Promise<void>;
}

/**
 * Creates the rules that report unusual use of keys, and the clients of the webhooks that receive the reports. Null if
 * the rules are turned off.
 * @throws OperatorError if a secret cannot be read
 */
export async function openUnusual({ registry: { unusual } }: Config): Promise<OpenedUnusual | null> {
  if (!unusual.enabled) return null;
  // Load these modules lazily: other commands need neither SQL nor an HTTP client.
  const [{ UnusualUse }, { targetIdOf }] = await Promise.all([
    import('../../registry/unusual/unusual-use.js'),
    import('../../registry/unusual/webhooks.js'),
  ]);
  const targets: WebhookTarget[] = [];
  const closing: (() => Promise<void>)[] = [];
  for (const { url, secretFile } of unusual.webhooks) {
    const { HttpsWebhook } = await import('../../adapters/webhooks/https-webhook.js');
    const webhook = new HttpsWebhook({
      url,
      secrets: await readWebhookSecrets(secretFile),
      now: () => systemClock.now(),
    });
    targets.push({ id: targetIdOf(url), name: new URL(url).host, send: (message) => webhook.send(message) });
    closing.push(() => webhook.close());
  }
  const use = new UnusualUse({ thresholds: unusual, targets: targets.map(({ id }) => id) });
  return {
    unusual: { use, targets, keepDays: unusual.keepDays },
    close: async () => {
      for (const close of closing) await close();
    },
  };
}
