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
