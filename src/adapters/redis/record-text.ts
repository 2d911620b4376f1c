import { MalformedRecord, parseRecordText } from '../../gateway/records.js';
import type { Seals } from './seal.js';

/**
 * Builds the text of a key or merchant record as stored in Redis. The seal is an HMAC that also covers the Redis key,
 * so a copy of the record under another Redis key is invalid. A generation is one unbroken history of changes. The name
 * of a later generation sorts later.
 * @param name Redis key, with the prefix of the store
 * @param generation the generation of the record
 */
export function recordText(seals: Seals, name: string, value: object, generation: string): string {
  return seals.seal(name, JSON.stringify({ ...value, generation }));
}

/**
 * Verifies the seal of a record, parses the record and checks its generation. Also accepts a record of a generation
 * later than the reader's. The registry writes such records before it announces their generation in the meta record,
 * which describes the store.
 * @param own the reader's generation
 * @throws MalformedRecord
 */
export function readRecordText(seals: Seals, name: string, text: string, own: string): unknown {
  seals.require(name, text);
  const value = parseRecordText(text);
  requireGeneration(seals, value, own);
  return value;
}

/**
 * Rejects a record from a generation earlier than the reader's, because the record may be outdated.
 * @param seals if seals are required, the record must name its generation
 * @param own the reader's generation
 * @throws MalformedRecord
 */
export function requireGeneration(seals: Seals, value: unknown, own: string): void {
  const generation: unknown = typeof value === 'object' && value !== null && 'generation' in value && value.generation;
  // A registry of an earlier release writes neither a generation nor a seal (HMAC).
  if (generation === false && !seals.areOn) return;
  if (typeof generation === 'string' && generation >= own) return;
  throw new MalformedRecord(
    'the record was written before the store was last rebuilt (earlier generation), so it may be outdated',
    { reason: 'earlier_generation' },
  );
}

/** Placeholder for a stored value that is not a string. It is neither JSON nor a number, so it cannot be parsed. */
export const nonStringText = 'not a string';

/**
 * Replaces a WRONGTYPE error with a text that cannot be parsed. A record of another Redis type, such as a list, then
 * counts as malformed and not as an outage of Redis.
 * @param error the rejection of a GET
 * @throws any other error
 */
export function malformedText(error: unknown): string {
  if (error instanceof Error && error.message.startsWith('WRONGTYPE ')) return nonStringText;
  throw error;
}

/** The highest valid revision (number of a change), which no registry ever reaches. */
export const highestRevision = 2 ** 50;

/**
 * The highest valid revision of a record. A record with a higher revision is malformed and is replaced. The registry
 * continues from the highest revision that it finds, so this limit leaves room for further revisions up to
 * `highestRevision`.
 */
export const highestOfRecords = highestRevision / 2;

/** Parses the revision (number of a change) in a text; 0 if the text is missing, null if it is invalid. */
export function revisionIn(text: string | null): number | null {
  const revision = Number(text ?? 0);
  return Number.isSafeInteger(revision) && revision >= 0 && revision <= highestRevision ? revision : null;
}

/** Builds the text that stores the newest change in Redis: the revision (number) and the id of the change. */
export function changeText({ revision, change }: { readonly revision: number; readonly change: string }): string {
  return `${revision}:${change}`;
}

/** Parses a stored change. Returns its id; null if the text is missing, malformed or for another revision (number). */
export function changeIn(text: string | null, revision: number): string | null {
  const [named, change = ''] = /^(\d{1,16}):([0-9A-Za-z_-]{1,64})$/.exec(text ?? '')?.slice(1) ?? [];
  return Number(named) === revision ? change : null;
}
