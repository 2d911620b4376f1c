import type { StoreEntry } from '../../../gateway/store-ports.js';
import { highestOfRecords, recordText } from '../record-text.js';
import type { Seals } from '../seal.js';

/**
 * Never replaces the record of a later change; replaces a malformed record.
 * A write of an abandoned connection may arrive after that of the next connection: when a network heals, it delivers
 * what the kernel had buffered. A revoked key would then work again.
 * KEYS: the record. ARGV: its text, or an empty text to delete it; the revision of the change. Returns the revision of
 * a record that was not replaced, or 0.
 */
const unlessLater = `
  local known, held = pcall(cjson.decode, redis.pcall('GET', KEYS[1]) or '')
  local revision = known and type(held) == 'table' and held.revision
  local isRevision = type(revision) == 'number' and revision % 1 == 0 and revision <= ${highestOfRecords}
  if isRevision and revision > tonumber(ARGV[2]) then return revision end
  if ARGV[1] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[1]) end
  return 0`;

/**
 * KEYS: the record. ARGV: its new text, or an empty text to delete it; the expected text. Returns 0, or 1 if the record
 * was not replaced.
 */
const whileForged = `
  if redis.call('GET', KEYS[1]) ~= ARGV[2] then return 1 end
  if ARGV[1] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[1]) end
  return 0`;

/** A record to be written, or to be deleted if its text is empty. */
export interface RecordWrite {
  /** With the prefix of the store. */
  readonly name: string;
  readonly text: string;
  /** Records up to this revision are replaced. */
  readonly newest: number;
}

/**
 * The text that an entry of the registry is stored as; empty if the record should not exist.
 * @param prefix of the store
 */
export function entryText(seals: Seals, prefix: string, { name, value }: StoreEntry, generation: string): string {
  return value === null ? '' : recordText(seals, prefix + name, value, generation);
}

/**
 * The write for an entry of the registry.
 * @param prefix of the store
 * @param of the revision of the change, and the generation
 */
export function recordWrite(
  seals: Seals,
  prefix: string,
  entry: StoreEntry,
  { change, generation }: { readonly change: number; readonly generation: string },
): RecordWrite {
  const { name, value } = entry;
  // A repeated write may carry an older change number than the write before it. The record's revision may be higher.
  const newest = value !== null && 'revision' in value ? Math.max(change, Number(value.revision)) : change;
  return { name: prefix + name, newest, text: entryText(seals, prefix, entry, generation) };
}

/** A command, and the name of its record. */
interface RecordCommand {
  readonly name: string;
  readonly command: readonly [string, ...string[]];
}

/**
 * Writes records.
 * @param run sends commands, and resolves to their replies in the same order
 * @returns the highest revision of a record that was not replaced; 0 if all were
 */
export async function writeRecords(
  seals: Seals,
  writes: readonly RecordWrite[],
  run: (commands: readonly RecordCommand[]) => Promise<readonly unknown[]>,
): Promise<number> {
  const replies = await run(
    writes.map(({ name, text, newest }) => ({ name, command: ['EVAL', unlessLater, '1', name, text, String(newest)] })),
  );
  const stayed = writes.flatMap((write, index) => {
    const revision = Number(replies[index]);
    return revision > 0 ? [{ ...write, revision }] : [];
  });
  if (stayed.length === 0 || !seals.areOn) return highestOf(stayed);
  // A forged record may name any revision. It would never be replaced.
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
