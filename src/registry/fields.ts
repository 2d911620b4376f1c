import { keyPrefixes } from '../policy/key-format.js';
import { line } from '../rest/line.js';
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

const anyCase = Object.values(keyPrefixes).map((prefix) =>
  prefix.replaceAll(/[a-z]/g, (letter) => `[${letter}${letter.toUpperCase()}]`),
);

/** One line of text for people that holds no key: what is pasted there by mistake would be kept, and shown to everybody. */
export function keylessLine(longest: number) {
  return line(longest, 'Till 4', { pattern: anyCase.join('|'), words: 'without anything that looks like a key' });
}
