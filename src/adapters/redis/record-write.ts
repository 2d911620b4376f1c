import { highestOfRecords } from './revision.js';

/**
 * A write of a connection that was given up may arrive behind that of the next one: a network that heals brings what the kernel
 * has kept, and a key would work again that was revoked meanwhile. So nothing replaces the record of a later change. What is no
 * record of any is replaced.
 * KEYS: the record. ARGV: its text, or nothing to take it away; the revision of the change. Returns the revision of a record
 * that stays, or 0.
 */
const unlessLater = `
  local known, held = pcall(cjson.decode, redis.pcall('GET', KEYS[1]) or '')
  local revision = known and type(held) == 'table' and held.revision
  local isRevision = type(revision) == 'number' and revision % 1 == 0 and revision <= ${highestOfRecords}
  if isRevision and revision > tonumber(ARGV[2]) then return revision end
  if ARGV[1] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[1]) end
  return 0`;

/**
 * The command that writes a record, or takes it away.
 * @param name with the prefix of the store
 * @param change the revision up to which it replaces what is there
 */
export function recordWrite(name: string, value: object | null, change: number): readonly [string, ...string[]] {
  // What is put back to be written once more has an older number than it was written under; the record may have a newer one.
  const newest = value !== null && 'revision' in value ? Math.max(change, Number(value.revision)) : change;
  const text = value === null ? '' : JSON.stringify(value);
  return ['EVAL', unlessLater, '1', name, text, String(newest)];
}

/** The highest revision of the records that stayed, by the answers to such commands; 0 where none did. */
export function highestThatStayed(answers: readonly unknown[]): number {
  return answers.reduce<number>((highest, answer) => Math.max(highest, Number(answer)), 0);
}
