/** By what a server tells whether a list has changed since it was fetched. */
export interface Validators {
  readonly etag: string | null;
  readonly lastModified: string | null;
}

/** A list as its source has it. */
export interface ListContent extends Validators {
  readonly text: string;
  /** When its file was last written (ISO 8601, UTC); null: it is no file. */
  readonly writtenAt: string | null;
}

/** What a source holds: a list, or no other list than the one that the validators are of. */
export type SourceContent = ListContent | 'unchanged';

/** The longest list, in bytes: more than the whole Tor network takes in any of the formats. */
export const maxListBytes = 16 * 1024 * 1024;
