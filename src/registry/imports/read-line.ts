import type { Problem } from '../../rest/envelope.js';
import { deepestLevel, type JsonProblem, parseStrictJson, StrictJsonError } from '../../json/strict-json.js';
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

// The messages do not name the field, because its name could be an API key.
const jsonMessages: Readonly<Record<JsonProblem, string>> = {
  invalid: 'is not valid JSON',
  'repeated-name': 'has two fields with the same name',
  'forbidden-name': 'has a field with the name __proto__, which is not allowed',
  'too-deep': `is nested more than ${deepestLevel} levels deep`,
  'too-precise': 'has a number with more digits than can be stored exactly',
};

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
    if (error instanceof StrictJsonError) return [{ path: '', message: jsonMessages[error.problem] }];
    if (error instanceof TypeError) return [{ path: '', message: 'is not valid UTF-8' }];
    throw error;
  }
}
