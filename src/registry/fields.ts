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
