import { createHash } from 'node:crypto';
import { redact } from '../../config/redact.js';

/** Where a list of Tor exits comes from. */
export interface ExitSource {
  /** The same for the same source in every process, and tells nothing of it: a URL may hold a secret. */
  readonly id: string;
  /** For people: without what could be secret in a URL. */
  readonly name: string;
  /** A URL that is fetched, by one gateway for all; or a file, which each gateway reads itself. */
  readonly location: { readonly url: URL } | { readonly file: string };
}

const httpUrl = /^https?:\/\//i;

/**
 * Reads an entry of `torExits.sources`.
 * @param allowReserved part of the id, because a list is kept without what that option leaves out
 */
export function exitSourceOf(entry: string, allowReserved: boolean): ExitSource {
  const id = createHash('sha256')
    .update(JSON.stringify([entry, allowReserved]))
    .digest('hex')
    .slice(0, 32);
  return { id, name: redact(entry), location: httpUrl.test(entry) ? { url: new URL(entry) } : { file: entry } };
}
