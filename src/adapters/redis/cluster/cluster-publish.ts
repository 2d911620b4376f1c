import type { Position } from '../../../registry/ports.js';
import type { RecordNames } from '../record-names.js';
import { changeText, highestRevision } from '../revision.js';
import { callOne } from './cluster-calls.js';
import type { ClusterMasters } from './cluster-masters.js';

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
