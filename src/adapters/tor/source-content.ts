/** By what a server tells whether a list has changed since it was fetched. */
export interface Validators {
  readonly etag: string | null;
  readonly lastModified: string | null;
}

/** What a source holds: a list, or no other list than the one that the validators are of. */
export type SourceContent = (Validators & { readonly text: string }) | 'unchanged';

/** The longest list, in bytes: more than the whole Tor network takes in any of the formats. */
export const maxListBytes = 16 * 1024 * 1024;
