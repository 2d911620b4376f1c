import { MalformedRecord, parseRecordText } from '../../gateway/records.js';
import type { Seals } from './seal.js';

/**
 * The text of a key's or merchant's record. Whatever writes one, or compares one with what it should be, has it from here.
 * @param name with the prefix of the store: a text is sealed under its name
 * @param generation the history that the record is of; its names sort by time
 */
export function recordText(seals: Seals, name: string, value: object, generation: string): string {
  return seals.seal(name, JSON.stringify({ ...value, generation }));
}

/**
 * Reads the text of a record that may be believed.
 * @param own the generation of the reader. Those that begin later are believed too: their records are written before their meta record
 * @throws MalformedRecord
 */
export function readRecordText(seals: Seals, name: string, text: string, own: string): unknown {
  seals.require(name, text);
  const value = parseRecordText(text);
  requireGeneration(seals, value, own);
  return value;
}

/**
 * Refuses a record of a generation before the reader's own.
 * @param seals what records have to be sealed with: where they do not have to be, one may name no generation
 * @throws MalformedRecord
 */
export function requireGeneration(seals: Seals, value: unknown, own: string): void {
  const generation: unknown = typeof value === 'object' && value !== null && 'generation' in value && value.generation;
  // A registry of an earlier release names none, and seals nothing.
  if (generation === false && !seals.areOn) return;
  if (typeof generation === 'string' && generation >= own) return;
  throw new MalformedRecord('the record is of an earlier generation', { reason: 'earlier_generation' });
}

/** Neither JSON nor a number. */
export const noText = 'not a string';

/**
 * The text of a record whose Redis value has another type, such as a list. Readers treat it as one damaged record. It is not an outage,
 * which would affect all records, because Redis has responded.
 * @param error what a GET was rejected with
 * @throws whatever else that is
 */
export function damagedText(error: unknown): string {
  if (error instanceof Error && error.message.startsWith('WRONGTYPE ')) return noText;
  throw error;
}

/** No registry ever counts so far. A higher revision is damage. */
export const highestRevision = 2 ** 50;

/**
 * The highest revision that a record may have. The registry continues from the highest one that it finds, and must not exceed
 * `highestRevision` by that. A record with a higher revision is damaged, and is replaced.
 */
export const highestOfRecords = highestRevision / 2;

/** The revision in a text; 0 where there is no text, null where it holds none. */
export function revisionIn(text: string | null): number | null {
  const revision = Number(text ?? 0);
  return Number.isSafeInteger(revision) && revision >= 0 && revision <= highestRevision ? revision : null;
}

/** How the name of a change is stored, with the revision that it has. */
export function changeText({ revision, change }: { readonly revision: number; readonly change: string }): string {
  return `${revision}:${change}`;
}

/** The name of the change of this revision in a text; null where the text is another one's, or none. */
export function changeIn(text: string | null, revision: number): string | null {
  const [named, change = ''] = /^(\d{1,16}):([0-9A-Za-z_-]{1,64})$/.exec(text ?? '')?.slice(1) ?? [];
  return Number(named) === revision ? change : null;
}
