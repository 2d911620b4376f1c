import { MemoryRecords, type StoredRecords } from '../../adapters/memory/memory-records.js';
import { readRecordsFile } from '../../adapters/memory/records-file.js';
import { requireGeneration } from '../../adapters/redis/record-text.js';
import { type Seals, withoutSeal } from '../../adapters/redis/seal.js';
import { RedisStoredRecords } from '../../adapters/redis/stored-records.js';
import { OperatorError } from '../../config/operator-error.js';
import type { Config } from '../../config/schema.js';
import { lookupIdOf, type Pepper } from '../../gateway/api-key.js';
import { type KeyStore, KeyStoreUnavailable } from '../../gateway/key-store.js';
import { RecordKeyStore } from '../../gateway/record-key-store.js';
import { parseRecordText } from '../../gateway/records.js';
import { readPepper, readRecordSeals } from '../compose/secrets.js';
import { redisAddressOf } from '../compose/redis-address.js';

/**
 * The key to look up: its key id, the id of its merchant, or the key itself. For a merchant id, the best matching key
 * of the merchant is looked up.
 */
export type KeySought = { readonly keyId: string } | { readonly merchantId: string } | { readonly key: string };

/** The stored records of a key and its merchant; null for a missing record. */
export interface StoredRecord {
  readonly key: Readonly<Record<string, unknown>> | null;
  readonly merchant: Readonly<Record<string, unknown>> | null;
  /**
   * `proven` is true if the seals (HMACs) of the records are valid. Otherwise `problem` says why they are not. `seals`
   * is null if no record secret is configured, the records are in a file, or the key has no record.
   */
  readonly seals: { readonly proven: boolean; readonly problem: string | null } | null;
  /**
   * Why gateways reject one of these records because of its generation; null if they reject none. A generation is an
   * unbroken history of changes. A record of an earlier generation than that of the store may be outdated.
   */
  readonly generationProblem: string | null;
  /** A key store that returns this record for every lookup, after the same checks as in a gateway. */
  readonly keyStore: Pick<KeyStore, 'find'>;
}

/** Read access to the records in a file or in Redis. */
interface Stored {
  /**
   * Returns the problem with the seals (HMACs) of these records; null if they are valid. Absent without a configured
   * record secret, and for records in a file.
   */
  readonly sealProblem?: (names: readonly string[]) => string | null;
  /**
   * Returns a problem if the record's generation is earlier than `own`, the store's current generation; otherwise null.
   * Absent for records in a file, because gateways do not check the generation of these records.
   */
  readonly generationProblem?: (name: string, record: object, own: string) => string | null;
  /** Reads a record by its name in the store, without the prefix; null if the record does not exist. */
  read(name: string): Promise<unknown>;
  /** Iterates over all keys: their lookup ids (hashes of the keys) and records. */
  keys(): AsyncIterable<readonly [string, unknown]>;
}

/** Which key of a merchant to prefer: one for `environment` that is active at the time `at` (ms since 1970). */
interface Preferred {
  readonly environment: string;
  readonly at: number;
}

/**
 * Finds the records of a key in the store that the gateway uses.
 * @param at time of the request, in milliseconds since 1970
 * @throws OperatorError if the store is unavailable, or has no key with the given key id or merchant id
 */
export async function findStoredRecord(config: Config, sought: KeySought, at: number): Promise<StoredRecord> {
  const { keyStore, keys, environment } = config;
  const preferred = { environment, at };
  const pepper = await readPepper(keys.pepperFile);
  if (keyStore.kind === 'memory') {
    const { recordsFile } = keyStore.memory;
    if (recordsFile === null)
      throw new OperatorError(
        'The records cannot be read: without keyStore.memory.recordsFile, they exist only in the memory of the gateway.',
      );
    return recordIn(inFile(await readRecordsFile(recordsFile)), sought, preferred, pepper);
  }
  const redis = new RedisStoredRecords(await redisAddressOf(keyStore.redis), keyStore.redis.prefix);
  try {
    const seals = await readRecordSeals(keys.recordSecretFile);
    return await recordIn(inRedis(redis, keyStore.redis.prefix, seals), sought, preferred, pepper);
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    const reason = error instanceof Error ? error.message : 'unknown reason';
    throw new OperatorError(`Redis at ${keyStore.redis.url} is unavailable: ${reason}.`, { cause: error });
  } finally {
    redis.close();
  }
}

async function recordIn(
  stored: Stored,
  sought: KeySought,
  preferred: Preferred,
  pepper: Pepper | null,
): Promise<StoredRecord> {
  const [lookupId, key] = await keyIn(stored, sought, preferred, pepper);
  const { merchantId } = asRecord(key) ?? {};
  const merchant = typeof merchantId === 'string' ? await stored.read(`merchant:${merchantId}`) : null;
  const records: Record<string, unknown> = { 'mg:meta': await stored.read('meta') };
  if (key !== null) records[`mg:key:${lookupId}`] = key;
  if (merchant !== null) records[`mg:merchant:${String(merchantId)}`] = merchant;
  if (records['mg:meta'] === null) delete records['mg:meta'];
  const known = new RecordKeyStore(new MemoryRecords(records));
  const names = Object.keys(records).map((name) => name.slice('mg:'.length));
  const problem = stored.sealProblem?.(names);
  const generationProblem = generationProblemIn(stored, records);
  return {
    key: asRecord(key),
    merchant: asRecord(merchant),
    seals: problem === undefined || key === null ? null : { proven: problem === null, problem },
    generationProblem,
    keyStore: {
      find: () => {
        const refused = problem ?? generationProblem;
        if (refused !== null) throw new KeyStoreUnavailable(refused);
        return known.find(lookupId);
      },
    },
  };
}

function generationProblemIn(stored: Stored, { 'mg:meta': meta, ...records }: Record<string, unknown>): string | null {
  const own = asRecord(meta)?.generation;
  if (typeof own !== 'string') return null;
  const problems = Object.entries(records).map(([name, value]) => {
    const record = asRecord(value);
    return record === null ? null : stored.generationProblem?.(name.slice('mg:'.length), record, own);
  });
  return problems.find((problem) => typeof problem === 'string') ?? null;
}

async function keyIn(
  stored: Stored,
  sought: KeySought,
  preferred: Preferred,
  pepper: Pepper | null,
): Promise<readonly [lookupId: string, key: unknown]> {
  if ('key' in sought) {
    const lookupId = lookupIdOf(sought.key, pepper);
    return [lookupId, await stored.read(`key:${lookupId}`)];
  }
  let best: readonly [string, unknown] | null = null;
  let bestRank = 0;
  for await (const found of stored.keys()) {
    const rank = rankOf(asRecord(found[1]), sought, preferred);
    if (rank <= bestRank) continue;
    [best, bestRank] = [found, rank];
    if (rank === highestRank) break;
  }
  if (best !== null) return best;
  const what = 'keyId' in sought ? `key ${sought.keyId}` : `key of the merchant ${sought.merchantId}`;
  throw new OperatorError(`The key store has no ${what}.`);
}

const highestRank = 4;

/**
 * Rates how well a key fits the search: 0 means that it does not match, and higher is better. The best key of a
 * merchant is an active key of this environment.
 */
function rankOf(
  record: Readonly<Record<string, unknown>> | null,
  sought: Exclude<KeySought, { key: string }>,
  { environment, at }: Preferred,
): number {
  if (record === null) return 0;
  if ('keyId' in sought) return record.keyId === sought.keyId ? highestRank : 0;
  if (record.merchantId !== sought.merchantId) return 0;
  const isExpired = typeof record.expiresAt === 'string' && Date.parse(record.expiresAt) <= at;
  const isActive = record.status === 'ACTIVE' && !isExpired;
  return 1 + (record.environment === environment ? 2 : 0) + (isActive ? 1 : 0);
}

function asRecord(value: unknown): Readonly<Record<string, unknown>> | null {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Readonly<Record<string, unknown>>)
    : null;
}

function inFile(records: StoredRecords): Stored {
  const prefix = 'mg:key:';
  return {
    read: (name) => Promise.resolve(records[`mg:${name}`] ?? null),
    // eslint-disable-next-line @typescript-eslint/require-await -- other stores read records asynchronously
    keys: async function* () {
      for (const [name, record] of Object.entries(records)) {
        if (name.startsWith(prefix)) yield [name.slice(prefix.length), record] as const;
      }
    },
  };
}

function inRedis(redis: RedisStoredRecords, prefix: string, seals: Seals): Stored {
  const problems = new Map<string, string | null>();
  const seen = (name: string, text: string | null): unknown => {
    if (text !== null) {
      const problem = problemOf(() => {
        seals.require(prefix + name, text);
      });
      problems.set(name, problem);
    }
    return jsonIn(text === null ? null : withoutSeal(text));
  };
  return {
    read: async (name) => seen(name, await redis.read(name)),
    keys: async function* () {
      for await (const [lookupId, text] of redis.keys()) yield [lookupId, seen(`key:${lookupId}`, text)] as const;
    },
    generationProblem: (name, record, own) => {
      const problem = problemOf(() => {
        requireGeneration(seals, record, own);
      });
      return problem === null
        ? null
        : `${prefix}${name}: the record was written before the last rebuild of the store, so the record may be outdated. Its generation is missing, or earlier than the generation in ${prefix}meta`;
    },
    ...(seals.areOn
      ? {
          sealProblem: (names) => {
            const unproven = names.find((name) => typeof problems.get(name) === 'string');
            return unproven === undefined ? null : `${prefix}${unproven}: ${problems.get(unproven) ?? ''}`;
          },
        }
      : {}),
  };
}

function problemOf(check: () => void): string | null {
  try {
    check();
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** Parses a record. Returns invalid JSON as text, so that the checks of the gateway reject it. */
function jsonIn(text: string | null): unknown {
  try {
    return text === null ? null : parseRecordText(text);
  } catch {
    return text;
  }
}
