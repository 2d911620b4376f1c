import type { Problem } from '../../rest/envelope.js';
import { parseStrictJson, StrictJsonError } from '../../json/strict-json.js';
import { holdsApiKey, holdsApiKeyMessage } from '../fields.js';
import { readEntry, type Entry } from './entry.js';

/**
 * Maximum length of a line in an import file, in bytes. It suffices for a merchant with two full allowlists, and is
 * below the maximum size of a request body.
 */
export const longestLineBytes = 768 * 1024;

/** A line of an import file: the JSON value to send, and the parsed entry. */
export interface ReadLine {
  readonly value: object;
  readonly entry: Entry;
}

const utf8 = new TextDecoder('utf-8', { fatal: true });

/**
 * Parses one line of an import file, or returns all of its problems. The messages never contain text that could be an
 * API key.
 */
export function readLine(bytes: Uint8Array): ReadLine | readonly Problem[] {
  try {
    const text = utf8.decode(bytes);
    if (holdsApiKey(text)) return [{ path: '', message: holdsApiKeyMessage }];
    const value = parseStrictJson(text);
    const entry = readEntry(value);
    return 'type' in entry ? { value: value as object, entry } : entry;
  } catch (error) {
    if (error instanceof StrictJsonError)
      return [
        {
          path: '',
          message:
            'is not valid JSON, names a field twice, has a field __proto__, is nested too deep, or has a number with too many digits',
        },
      ];
    if (error instanceof TypeError) return [{ path: '', message: 'is not valid UTF-8' }];
    throw error;
  }
}
