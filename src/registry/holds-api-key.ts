import { keyPrefixes } from '../policy/key-format.js';

const prefixes = new RegExp(Object.values(keyPrefixes).join('|'), 'i');

/**
 * Says whether a text holds what looks like a key itself. Such a text is not sent, kept or repeated: an import knows keys
 * by their hashes alone.
 */
export function holdsApiKey(text: string): boolean {
  return prefixes.test(text);
}

/** What is wrong with a line or field that holds one. */
export const holdsApiKeyMessage = 'holds what looks like a key itself: give its hash as lookupId, and the key nowhere';
