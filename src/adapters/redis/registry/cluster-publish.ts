import type { Position, StoreLook } from '../../../gateway/store-ports.js';
import type { RecordNames } from '../record-names.js';
import { changeText, damagedText, highestRevision, noText } from '../record-text.js';
import { digestOfNothing, type Replacement } from './record-watch.js';
import { isProof } from '../seal.js';
import { callEach, callOne } from '../cluster/cluster-calls.js';
import type { ClusterMasters } from '../cluster/cluster-masters.js';

/**
 * A registry that was paused, and whose lease another one has, wakes with an older revision: gateways would take the store for one
 * that has lost changes. What is no revision is replaced.
 * KEYS: the revision, the change. ARGV: those to be published. Returns whether they were.
 */
const unlessFurther = `
  local named = tonumber(redis.pcall('GET', KEYS[1]) or '')
  local isRevision = named and named % 1 == 0 and named <= ${highestRevision}
  if isRevision and named > tonumber(ARGV[1]) then return 0 end
  redis.call('SET', KEYS[2], ARGV[2])
  redis.call('SET', KEYS[1], ARGV[1])
  return 1`;

/** Publishes a change. @throws Error where a later one was published */
export async function publishUnlessFurther(
  masters: ClusterMasters,
  names: RecordNames,
  { revision, change }: Position,
): Promise<void> {
  const name = names.revision;
  const texts = [String(revision), changeText({ revision, change })];
  const command = ['EVAL', unlessFurther, '2', name, names.changeInCluster, ...texts];
  if ((await callOne(masters, { name, command })) === 1) return;
  throw new Error('another registry has published a later revision; the store is looked at anew');
}

/**
 * Which generation the slots of a Cluster are to be complete in. A forged meta record may name any: by that every slot would seem to
 * lack its records, and all of them would be written anew.
 */
export class StatedGeneration {
  #sealed = '';

  /** @returns the latest that a sealed meta record has named; before the first, whatever this one names */
  of({ meta, seal }: Pick<StoreLook, 'meta' | 'seal'>): string {
    const stated = meta?.generation ?? '';
    // One that somebody has put back is sealed too, but names an earlier generation.
    if (isProof(seal) && stated > this.#sealed) this.#sealed = stated;
    return this.#sealed === '' ? stated : this.#sealed;
  }
}

/**
 * No mark shows in every slot which registry writes. So a registry that was paused replaces nothing but what it has seen: another one
 * may have written a later record meanwhile.
 * KEYS: the record. ARGV: the digest of what it replaces; its text, or nothing to take it away.
 */
const ifUnchanged = `
  local held = redis.pcall('GET', KEYS[1])
  if type(held) == 'table' then held = '${noText}' end
  local digest = held and redis.sha1hex(held) or '${digestOfNothing}'
  if digest ~= ARGV[1] then return 0 end
  if ARGV[2] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[2]) end
  return 1`;

/** The stored bytes of records, in the order of their full names; null for one that is not there. */
export async function readEach(masters: ClusterMasters, names: readonly string[]): Promise<(Buffer | null)[]> {
  const calls = names.map((name) => ({ name, command: ['GET', name], inBytes: true }));
  const answers = await callEach(masters, calls, damagedText);
  return answers.map((answer) => (answer === null ? null : Buffer.isBuffer(answer) ? answer : Buffer.from(noText)));
}

/** Replaces records that are still what was seen. */
export async function replaceEach(masters: ClusterMasters, replacements: readonly Replacement[]): Promise<void> {
  const calls = replacements.map(({ name, digest, text }) => ({
    ...{ name, command: ['EVAL', ifUnchanged, '1', name, digest, text] },
  }));
  await callEach(masters, calls);
}
