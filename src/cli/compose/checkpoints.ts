import { hostname } from 'node:os';
import { HttpsCheckpoints } from '../../adapters/checkpoints/https-checkpoints.js';
import { SyslogCheckpoints } from '../../adapters/checkpoints/syslog-checkpoints.js';
import { checkpointStream, type MessageStream } from '../../adapters/redis/channel/message-text.js';
import { RedisChannel } from '../../adapters/redis/channel/redis-channel.js';
import { OperatorError } from '../../config/operator-error.js';
import { readOperatorFile, readToken } from '../../config/operator-file.js';
import type { Config } from '../../config/schema.js';
import { InvalidNote, keyText, type NoteKey, type NoteSigner, parseKey } from '../../evidence/signed-note.js';
import type { RegistryChannel } from '../../gateway/channel-ports.js';
import { CheckpointFile } from '../../telemetry/checkpoints/checkpoint-file.js';
import { type CheckpointDestination, CheckpointLog } from '../../telemetry/checkpoints/checkpoint-log.js';
import type { ReceiptOptions, WitnessReply } from '../../telemetry/checkpoints/receipts.js';
import type { Logger } from '../../telemetry/logger.js';
import Type, { Check } from '../../typebox/typebox.js';
import { readRecordSeals } from './secrets.js';
import { ensureSigner, instanceKeySubject } from './note-signer.js';
import { redisAddressOf } from './redis-address.js';

/**
 * Timeout of Redis commands that carry checkpoints and request counts to the registry. It is longer than for key
 * lookups, because no client request waits for these commands.
 */
const commandTimeoutMilliseconds = 5_000;

const maxPemBytes = 1024 * 1024;

type Checkpoints = NonNullable<Config['accessLog']['checkpoints']>;
type Destinations = Pick<Checkpoints, 'file' | 'https' | 'syslog'>;

const replySchema = Type.Object({
  status: Type.Integer(),
  problem: Type.Optional(Type.String()),
  receipt: Type.Optional(Type.String()),
  key: Type.Optional(Type.String()),
  head: Type.Optional(Type.String()),
});

/**
 * Opens the signer of access-log checkpoints, which are signed statements about the log. Creates the signing key if it
 * is missing. Returns null if checkpoints are not configured. Checkpoints go to the registry only if
 * `accessLog.checkpoints.witness` is set.
 * @param channel carries checkpoints to a registry in this process, which replies with receipts; null: checkpoints go
 *   to the registry over Redis
 * @throws OperatorError
 */
export async function openCheckpoints(
  config: Config,
  log: Logger,
  channel: RegistryChannel | null = null,
): Promise<CheckpointLog | null> {
  const { checkpoints } = config.accessLog;
  if (checkpoints === null) return null;
  const { keyFile, everySeconds } = checkpoints;
  const { signer: instance, isNew } = await ensureSigner(checkpoints, instanceKeySubject);
  if (isNew)
    log.info(
      { keyFile, publicKey: keyText(instance.key) },
      'created an instance key to sign access-log checkpoints; store its public key for audits',
    );
  return new CheckpointLog({
    instance,
    places: await openDestinations(checkpoints),
    everyMilliseconds: everySeconds * 1000,
    onProblem: (place, problem) => {
      if (problem === null) log.info({ place }, 'access-log checkpoints can be written again');
      else log.error({ place, problem }, 'access-log checkpoints cannot be written; retrying');
    },
    receipts: await openReceipts(config, checkpoints, instance, channel, log),
  });
}

async function openReceipts(
  config: Config,
  { everySeconds, file, witness }: Checkpoints,
  instance: NoteSigner,
  given: RegistryChannel | null,
  log: Logger,
): Promise<ReceiptOptions | null> {
  if (witness === null) return null;
  const { destination } = config.accessLog;
  const channel = given ?? (await openChannel(config, checkpointStream));
  return {
    key: witnessKeyOf(witness),
    registerMilliseconds: witness.registerSeconds * 1000,
    isRequired: witness.required,
    besideFile: file ?? (destination === 'stdout' ? null : destination),
    submit: async (submission) => {
      const body = JSON.stringify({ key: keyText(instance.key), everySeconds, submission });
      return parseReply(await channel.send({ kind: 'checkpoint', body }));
    },
    close: () => channel.close(),
    onKeyChange: ({ former, current }) => {
      log.warn(
        { formerPublicKey: former, publicKey: current },
        'the registry signs receipts with a new key; compare it with the key that "checkpoints head" prints',
      );
    },
    onProblem: (problem) => {
      if (problem === null) log.info('the registry signs receipts for access-log checkpoints again');
      else log.error({ problem }, 'cannot get valid receipts for access-log checkpoints from the registry; retrying');
    },
    onLoss: (problem) => {
      log.error({ problem }, 'the registry lost checkpoints of access logs; its receipts are still accepted');
    },
  };
}

/** Opens a channel to the registry over Redis. */
export async function openChannel(
  { keyStore: { redis }, keys }: Config,
  stream: MessageStream,
): Promise<RegistryChannel> {
  const address = { ...(await redisAddressOf(redis)), commandTimeoutMilliseconds };
  return new RedisChannel(address, redis.prefix, await readRecordSeals(keys.recordSecretFile), stream);
}

/** Parses the configured public key for receipts; null without one. @throws OperatorError */
export function witnessKeyOf(witness: Checkpoints['witness']): NoteKey | null {
  const { publicKey = null } = witness ?? {};
  if (publicKey === null) return null;
  try {
    const key = parseKey(publicKey);
    if (key.purpose === 'receipt') return key;
  } catch (error) {
    if (!(error instanceof InvalidNote)) throw error;
  }
  throw new OperatorError(
    'accessLog.checkpoints.witness.publicKey is not a public key for receipts: use the key that "checkpoints head" prints.',
  );
}

function parseReply(text: string): WitnessReply {
  const reply: unknown = JSON.parse(text);
  if (!Check(replySchema, reply)) throw new Error('the reply of the registry is malformed');
  return reply;
}

/**
 * Opens the configured destinations that store access-log checkpoints.
 * @throws OperatorError
 */
export async function openDestinations({ file, https, syslog }: Destinations): Promise<CheckpointDestination[]> {
  return [
    ...(file === null ? [] : [new CheckpointFile(file)]),
    ...(https === null ? [] : [await openHttps(https)]),
    ...(syslog === null ? [] : [await openSyslog(syslog)]),
  ];
}

async function openHttps({
  url,
  tokenFile,
  caFile,
}: NonNullable<Destinations['https']>): Promise<CheckpointDestination> {
  const token = tokenFile === null ? null : await readToken(tokenFile, 'The token for checkpoints');
  return new HttpsCheckpoints({ url, token, ca: await readCa(caFile) });
}

async function openSyslog({ url, caFile }: NonNullable<Destinations['syslog']>): Promise<CheckpointDestination> {
  return new SyslogCheckpoints({ url, ca: await readCa(caFile), hostname: hostname(), now: () => Date.now() });
}

async function readCa(file: string | null): Promise<Buffer | null> {
  return file === null ? null : readOperatorFile(file, 'The CA certificate for checkpoints', maxPemBytes);
}
