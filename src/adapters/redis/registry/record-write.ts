import type { StoreEntry } from '../../../gateway/store-ports.js';
import { highestOfRecords, recordText } from '../record-text.js';
import type { Seals } from '../seal.js';

/**
 * Lua: writes a record, unless a valid record with a later revision is stored. When a network recovers, the kernel
 * could deliver an old write after the writes of a newer connection. Without this check, the old write could make a
 * revoked key work again.
 * KEYS: the record. ARGV: its text, or an empty text to delete it; the revision of the change. Returns the revision of
 * the stored record if that record was kept, otherwise 0.
 */
const unlessLater = `
  local known, held = pcall(cjson.decode, redis.pcall('GET', KEYS[1]) or '')
  local revision = known and type(held) == 'table' and held.revision
  local isRevision = type(revision) == 'number' and revision % 1 == 0 and revision <= ${highestOfRecords}
  if isRevision and revision > tonumber(ARGV[2]) then return revision end
  if ARGV[1] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[1]) end
  return 0`;

/**
 * Lua: replaces a forged record only if it still has the expected text, so that a genuine record written meanwhile is
 * kept.
 * KEYS: the record. ARGV: its new text, or an empty text to delete it; the expected text. Returns 0 if the record was
 * replaced, otherwise 1.
 */
const whileForged = `
  if redis.call('GET', KEYS[1]) ~= ARGV[2] then return 1 end
  if ARGV[1] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[1]) end
  return 0`;

/** A record to be written, or to be deleted if its text is empty. */
export interface RecordWrite {
  /** The Redis key, with the prefix of the store. */
  readonly name: string;
  readonly text: string;
  /**
   * The highest revision at which a stored record is overwritten. The revision of a record is the number of its last
   * change. A stored record with a higher revision is kept, unless it is forged.
   */
  readonly newest: number;
}

/**
 * Builds the text of an entry (a record of the registry) for Redis; empty if the record must not exist.
 * @param prefix the prefix of the store's Redis keys
 */
export function entryText(seals: Seals, prefix: string, { name, value }: StoreEntry, generation: string): string {
  return value === null ? '' : recordText(seals, prefix + name, value, generation);
}

/**
 * Prepares an entry of the registry for writing.
 * @param prefix the prefix of the store's Redis keys
 * @param written the number of the change, and the generation (unbroken history of changes)
 */
export function recordWrite(
  seals: Seals,
  prefix: string,
  entry: StoreEntry,
  { change, generation }: { readonly change: number; readonly generation: string },
): RecordWrite {
  const { name, value } = entry;
  // A repeated write can have a change number below the record's revision, so the higher of the two is used.
  const newest = value !== null && 'revision' in value ? Math.max(change, Number(value.revision)) : change;
  return { name: prefix + name, newest, text: entryText(seals, prefix, entry, generation) };
}

/** A Redis command for one record, and the Redis key of that record. */
interface RecordCommand {
  readonly name: string;
  readonly command: readonly [string, ...string[]];
}

/**
 * Writes records.
 * @param run sends commands, and resolves to their replies in the same order
 * @returns the highest revision (change number) among the records that were not replaced; 0 if all were replaced
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
  // A forged record with a high revision would never be replaced. So records with an invalid seal (HMAC) are replaced
  // here.
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
