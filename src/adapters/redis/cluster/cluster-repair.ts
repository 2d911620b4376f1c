import { damagedText, noText } from '../damaged-text.js';
import { digestOfNothing, type Replacement } from '../record-watch.js';
import { callEach } from './cluster-calls.js';
import type { ClusterMasters } from './cluster-masters.js';

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
