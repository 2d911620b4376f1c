import type { StoreEntry } from '../../../gateway/store-ports.js';
import { highestOfRecords, recordText } from '../record-text.js';
import type { Seals } from '../seal.js';

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

/** KEYS: the record. ARGV: its text, or nothing to take it away; what it has to be still. Returns 0, or 1 where it stays. */
const whileForged = `
  if redis.call('GET', KEYS[1]) ~= ARGV[2] then return 1 end
  if ARGV[1] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[1]) end
  return 0`;

/** A record that is to be written, or to be taken away where its text is empty. */
export interface RecordWrite {
  /** With the prefix of the store. */
  readonly name: string;
  readonly text: string;
  /** The revision up to which it replaces what is there. */
  readonly newest: number;
}

/** The text that an entry of the registry is stored as; empty where there is to be none. @param prefix that of the store */
export function entryText(seals: Seals, prefix: string, { name, value }: StoreEntry, generation: string): string {
  return value === null ? '' : recordText(seals, prefix + name, value, generation);
}

/**
 * What has to be written for an entry of the registry.
 * @param prefix that of the store
 * @param of the revision of the change that it is written for, and the history
 */
export function recordWrite(
  seals: Seals,
  prefix: string,
  entry: StoreEntry,
  { change, generation }: { readonly change: number; readonly generation: string },
): RecordWrite {
  const { name, value } = entry;
  // What is put back to be written once more has an older number than it was written under; the record may have a newer one.
  const newest = value !== null && 'revision' in value ? Math.max(change, Number(value.revision)) : change;
  return { name: prefix + name, newest, text: entryText(seals, prefix, entry, generation) };
}

/** A command, and the record that it is about. */
interface RecordCommand {
  readonly name: string;
  readonly command: readonly [string, ...string[]];
}

/**
 * Writes records.
 * @param run sends commands, and resolves to their answers in the same order
 * @returns the highest revision of a record that stayed; 0 where none did
 */
export async function writeRecords(
  seals: Seals,
  writes: readonly RecordWrite[],
  run: (commands: readonly RecordCommand[]) => Promise<readonly unknown[]>,
): Promise<number> {
  const answers = await run(
    writes.map(({ name, text, newest }) => ({ name, command: ['EVAL', unlessLater, '1', name, text, String(newest)] })),
  );
  const stayed = writes.flatMap((write, index) => {
    const revision = Number(answers[index]);
    return revision > 0 ? [{ ...write, revision }] : [];
  });
  if (stayed.length === 0 || !seals.areOn) return highestOf(stayed);
  // A forged record may name any revision, and would stay for good.
  const texts = await run(stayed.map(({ name }) => ({ name, command: ['GET', name] })));
  const held = stayed.map((write, index) => ({ ...write, held: texts[index] }));
  const forged = held.flatMap(({ name, text, held }) =>
    typeof held === 'string' && !seals.accept(name, held) ? [{ name, text, held }] : [],
  );
  const left = await run(
    forged.map(({ name, text, held }) => ({ name, command: ['EVAL', whileForged, '1', name, text, held] })),
  );
  const replaced = new Set(forged.filter((_, index) => left[index] === 0).map(({ name }) => name));
  return highestOf(stayed.filter(({ name }) => !replaced.has(name)));
}

function highestOf(stayed: readonly { readonly revision: number }[]): number {
  return stayed.reduce((highest, { revision }) => Math.max(highest, revision), 0);
}
