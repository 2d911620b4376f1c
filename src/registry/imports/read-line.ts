import type { Problem } from '../../rest/envelope.js';
import { parseStrictJson, StrictJsonError } from '../../json/strict-json.js';
import { holdsApiKey, holdsApiKeyMessage } from '../fields.js';
import { readEntry, type Entry } from './entry.js';

/** Longest line of an import, in bytes. Fits a merchant with both lists full, and fits a request. */
export const longestLineBytes = 768 * 1024;

/** A line of an import: the JSON to send, and the parsed entry. */
export interface ReadLine {
  readonly value: object;
  readonly entry: Entry;
}

const utf8 = new TextDecoder('utf-8', { fatal: true });

/** Parses one line of an import, or returns all its problems. Messages never repeat text that could be a key. */
export function readLine(bytes: Uint8Array): ReadLine | readonly Problem[] {
  try {
    const text = utf8.decode(bytes);
    if (holdsApiKey(text)) return [{ path: '', message: holdsApiKeyMessage }];
    const value = parseStrictJson(text);
    const entry = readEntry(value);
    return 'type' in entry ? { value: value as object, entry } : entry;
  } catch (error) {
    if (error instanceof StrictJsonError) return [{ path: '', message: 'is not valid JSON, or names a field twice' }];
    if (error instanceof TypeError) return [{ path: '', message: 'is not valid UTF-8' }];
    throw error;
  }
}
