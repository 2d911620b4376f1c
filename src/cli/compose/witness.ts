import { RedisInbox } from '../../adapters/redis/channel/redis-inbox.js';
import type { Config } from '../../config/schema.js';
import { keyText, type NoteSigner } from '../../evidence/signed-note.js';
import type { GatewayInbox } from '../../gateway/channel-ports.js';
import type { Logger } from '../../telemetry/logger.js';
import { readRecordSeals } from './secrets.js';
import { ensureSigner, readSigner, type SignerOptions } from './note-signer.js';
import { redisAddressOf } from './redis-address.js';

/** Minimum interval between log lines about rejected messages, so that an attacker cannot flood the log. */
const betweenReportsMilliseconds = 60_000;
const commandTimeoutMilliseconds = 5_000;
const what = 'The key of receipts';

/** Opens the signer of receipts; null if no witness is configured. Creates a missing key. @throws OperatorError */
export async function openWitness({ registry: { witness } }: Config, log: Logger): Promise<NoteSigner | null> {
  if (witness === null) return null;
  const { signer, isNew } = await ensureSigner(witness, what);
  if (isNew)
    log.info(
      { keyFile: witness.keyFile, publicKey: keyText(signer.receiptKey) },
      'created a key to sign receipts for access-log checkpoints; store its public key for audits',
    );
  return signer;
}

/** Reads the key that signs receipts. @throws OperatorError */
export function readWitnessKey(key: SignerOptions): Promise<NoteSigner> {
  return readSigner(key, what);
}

/** Opens the inbox of the registry for messages of gateways over Redis. @throws OperatorError */
export async function openInbox({ keyStore: { redis }, keys }: Config, log: Logger): Promise<GatewayInbox> {
  const address = { ...(await redisAddressOf(redis)), commandTimeoutMilliseconds };
  const seals = await readRecordSeals(keys.recordSecretFile);
  const refused = throttled((why) => {
    log.error({ why }, 'message from a gateway rejected');
  });
  const failed = throttled((error) => {
    log.error({ err: error }, 'processing a message from a gateway failed; retrying');
  });
  return new RedisInbox(address, redis.prefix, seals, { onRefused: refused, onFailure: failed });
}

function throttled<Value>(report: (value: Value) => void): (value: Value) => void {
  let reportedAt = -Infinity;
  return (value) => {
    if (performance.now() - reportedAt < betweenReportsMilliseconds) return;
    reportedAt = performance.now();
    report(value);
  };
}
