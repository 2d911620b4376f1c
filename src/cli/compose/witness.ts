import type { MessageStream } from '../../adapters/redis/channel/message-text.js';
import { RedisInbox } from '../../adapters/redis/channel/redis-inbox.js';
import type { Config } from '../../config/schema.js';
import { keyText, type NoteSigner } from '../../evidence/signed-note.js';
import type { GatewayInbox } from '../../gateway/channel-ports.js';
import type { Logger } from '../../telemetry/logger.js';
import { readRecordSeals } from './secrets.js';
import { ensureSigner, readSigner, type SignerOptions } from './note-signer.js';
import { redisAddressOf } from './redis-address.js';

/**
 * Minimum interval between log lines about rejected messages, and between log lines about failed messages. Otherwise,
 * an attacker could flood the log.
 */
const betweenReportsMilliseconds = 60_000;
const commandTimeoutMilliseconds = 5_000;
const what = 'The key of receipts';

/**
 * Opens the signer of receipts (statements that the registry stored a checkpoint). Creates a missing key file.
 * Null if the configuration has no `registry.witness`.
 * @throws OperatorError
 */
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

/**
 * Reads the key with which the registry signs receipts (statements that it stored a checkpoint).
 * @throws OperatorError
 */
export function readWitnessKey(key: SignerOptions): Promise<NoteSigner> {
  return readSigner(key, what);
}

/**
 * Opens the inbox in which the registry receives messages of gateways over Redis.
 * @throws OperatorError
 */
export async function openInbox(
  { keyStore: { redis }, keys }: Config,
  stream: MessageStream,
  log: Logger,
): Promise<GatewayInbox> {
  const address = { ...(await redisAddressOf(redis)), commandTimeoutMilliseconds };
  const seals = await readRecordSeals(keys.recordSecretFile);
  const refused = throttled((why) => {
    log.error({ why }, 'rejected a message that a gateway sent to the registry over Redis');
  });
  const failed = throttled((error) => {
    log.error({ err: error }, 'failed to process a message that a gateway sent to the registry over Redis; retrying');
  });
  const tooLong = throttled((kind) => {
    log.error(
      { kind },
      'the reply to a message of a gateway is too long to be sent; report this as a bug of the registry',
    );
  });
  const events = { onRefused: refused, onFailure: failed, onLongReply: tooLong };
  return new RedisInbox(address, redis.prefix, seals, events, stream);
}

function throttled<Value>(report: (value: Value) => void): (value: Value) => void {
  let reportedAt = -Infinity;
  return (value) => {
    if (performance.now() - reportedAt < betweenReportsMilliseconds) return;
    reportedAt = performance.now();
    report(value);
  };
}
