import { keyPrefixes } from '../policy/key-format.js';
import { Refusal } from '../rest/refusal.js';

/** The form of the ids of merchants and keys. */
export const identifierForm = /^[A-Za-z0-9_-]{1,64}$/;

/**
 * The id in a path. What cannot be an id is answered like one that nobody has.
 * @throws Refusal
 */
export function idIn({ id }: { readonly id: string }, what: string): string {
  if (!identifierForm.test(id)) throw Refusal.notFound(what);
  return id;
}

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
