import type { Position, StoreSnapshot } from '../../../gateway/store-ports.js';
import type { RecordNames } from '../record-names.js';
import { changeText, malformedText, highestRevision, nonStringText } from '../record-text.js';
import { digestOfNothing, type Replacement } from './record-watch.js';
import { isProof } from '../seal.js';
import { callEach, callOne } from '../cluster/cluster-calls.js';
import type { ClusterMasters } from '../cluster/cluster-masters.js';

/**
 * Lua: writes the revision (number) and the id of a change, but not if a later valid revision is stored. A registry
 * that was paused may have lost its lease, which is its right to write. Without this check, that registry could publish
 * an older revision. Gateways would then assume that the store has lost changes. KEYS: the revision, the change. ARGV:
 * their new values. Returns 1 if they were written, otherwise 0.
 */
const unlessLaterPublished = `
  local named = tonumber(redis.pcall('GET', KEYS[1]) or '')
  local isRevision = named and named % 1 == 0 and named <= ${highestRevision}
  if isRevision and named > tonumber(ARGV[1]) then return 0 end
  redis.call('SET', KEYS[2], ARGV[2])
  redis.call('SET', KEYS[1], ARGV[1])
  return 1`;

/**
 * Publishes a change: writes its revision (number) and its id, so that gateways learn of it.
 * @throws Error if a later change was published
 */
export async function publishUnlessLater(
  masters: ClusterMasters,
  names: RecordNames,
  { revision, change }: Position,
): Promise<void> {
  const name = names.revision;
  const texts = [String(revision), changeText({ revision, change })];
  const command = ['EVAL', unlessLaterPublished, '2', name, names.changeInCluster, ...texts];
  if ((await callOne(masters, { name, command })) === 1) return;
  throw new Error('another registry has written a later change; reading the store again');
}

/**
 * Determines the generation in which the slots of a Cluster must be complete. A generation is one unbroken history of
 * changes, and the meta record of the store names it. Forged meta records are ignored: a forged generation would make
 * every slot seem incomplete, and the registry would rewrite all records.
 */
export class StatedGeneration {
  #sealed = '';

  /**
   * Returns the generation that the slots must have. This is the latest generation that a meta record with a valid seal
   * (HMAC) has named. Before the first such record, it is the generation that the given meta record names.
   */
  of({ meta, seal }: Pick<StoreSnapshot, 'meta' | 'seal'>): string {
    const stated = meta?.generation ?? '';
    // An attacker could replay an old meta record, whose seal is valid. The old record names an earlier generation, so
    // it is ignored.
    if (isProof(seal) && stated > this.#sealed) this.#sealed = stated;
    return this.#sealed === '' ? stated : this.#sealed;
  }
}

/**
 * Lua: replaces a record only if it is unchanged. Otherwise a registry that was paused could overwrite a later record
 * of another registry. A Cluster has no fencing token to prevent that. KEYS: the record. ARGV: the digest of the
 * expected text; the new text, or an empty text to delete the record. Returns 1 if the record was replaced, otherwise
 * 0.
 */
const ifUnchanged = `
  local held = redis.pcall('GET', KEYS[1])
  if type(held) == 'table' then held = '${nonStringText}' end
  local digest = held and redis.sha1hex(held) or '${digestOfNothing}'
  if digest ~= ARGV[1] then return 0 end
  if ARGV[2] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[2]) end
  return 1`;

/** Reads the stored bytes of the records under these Redis keys, in the same order; null for a missing record. */
export async function readEach(masters: ClusterMasters, names: readonly string[]): Promise<(Buffer | null)[]> {
  const calls = names.map((name) => ({ name, command: ['GET', name], inBytes: true }));
  const replies = await callEach(masters, calls, malformedText);
  return replies.map((reply) => (reply === null ? null : Buffer.isBuffer(reply) ? reply : Buffer.from(nonStringText)));
}

/** Replaces each record whose stored text still has the expected digest. Leaves the other records unchanged. */
export async function replaceEach(masters: ClusterMasters, replacements: readonly Replacement[]): Promise<void> {
  const calls = replacements.map(({ name, digest, text }) => ({
    ...{ name, command: ['EVAL', ifUnchanged, '1', name, digest, text] },
  }));
  await callEach(masters, calls);
}
