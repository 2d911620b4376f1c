/** No registry ever counts so far; a higher revision is a damaged record, and the registry would take it for its own. */
export const highestRevision = 2 ** 50;

/**
 * What a record may name at most. The registry goes on above what it finds there, and must not come to a number that is none:
 * a higher one is a damaged record, and is replaced.
 */
export const highestOfRecords = highestRevision / 2;

/** The revision in a text; 0 where there is no text, null where it holds none. */
export function revisionIn(text: string | null): number | null {
  const revision = Number(text ?? 0);
  return Number.isSafeInteger(revision) && revision >= 0 && revision <= highestRevision ? revision : null;
}
