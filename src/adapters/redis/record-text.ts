import { MalformedRecord, parseRecordText } from '../../gateway/records.js';
import type { Seals } from './seal.js';

/**
 * The text of a key or merchant record. Every writer, and every comparison with the expected text, uses this function.
 * @param name with the prefix of the store; the seal covers the name
 * @param generation of the record; generation names sort by time
 */
export function recordText(seals: Seals, name: string, value: object, generation: string): string {
  return seals.seal(name, JSON.stringify({ ...value, generation }));
}

/**
 * Parses the text of a record that may be trusted.
 * @param own the reader's generation. Later generations are accepted too: their records are written before their meta
 * record
 * @throws MalformedRecord
 */
export function readRecordText(seals: Seals, name: string, text: string, own: string): unknown {
  seals.require(name, text);
  const value = parseRecordText(text);
  requireGeneration(seals, value, own);
  return value;
}

/**
 * Rejects a record of a generation before the reader's own.
 * @param seals if seals are required, the record must name a generation
 * @throws MalformedRecord
 */
export function requireGeneration(seals: Seals, value: unknown, own: string): void {
  const generation: unknown = typeof value === 'object' && value !== null && 'generation' in value && value.generation;
  // A registry of an earlier release writes no generation, and no seal.
  if (generation === false && !seals.areOn) return;
  if (typeof generation === 'string' && generation >= own) return;
  throw new MalformedRecord('the record is of an earlier generation', { reason: 'earlier_generation' });
}

/** Placeholder for a value that is not a string; neither JSON nor a number. */
export const nonStringText = 'not a string';

/**
 * Maps WRONGTYPE to an unparsable value: one record of the wrong Redis type, such as a list, is malformed, not an
 * outage.
 * @param error the rejection of a GET
 * @throws any other error
 */
export function malformedText(error: unknown): string {
  if (error instanceof Error && error.message.startsWith('WRONGTYPE ')) return nonStringText;
  throw error;
}

/** No registry ever reaches this revision. A higher one is invalid. */
export const highestRevision = 2 ** 50;

/**
 * The highest valid revision of a record. The registry continues from the highest revision that it finds, and must stay
 * below `highestRevision`. A record with a higher one is malformed, and is replaced.
 */
export const highestOfRecords = highestRevision / 2;

/** The revision in a text; 0 if the text is missing, null if it is invalid. */
export function revisionIn(text: string | null): number | null {
  const revision = Number(text ?? 0);
  return Number.isSafeInteger(revision) && revision >= 0 && revision <= highestRevision ? revision : null;
}

/** The stored form of a change's name, with its revision. */
export function changeText({ revision, change }: { readonly revision: number; readonly change: string }): string {
  return `${revision}:${change}`;
}

/** The name of the change with this revision; null if the text is missing or has another revision. */
export function changeIn(text: string | null, revision: number): string | null {
  const [named, change = ''] = /^(\d{1,16}):([0-9A-Za-z_-]{1,64})$/.exec(text ?? '')?.slice(1) ?? [];
  return Number(named) === revision ? change : null;
}
