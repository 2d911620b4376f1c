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

/** How the name of a change is stored, with the revision that it has. */
export function changeText({ revision, change }: { readonly revision: number; readonly change: string }): string {
  return `${revision}:${change}`;
}

/** The name of the change of this revision in a text; null where the text is another one's, or none. */
export function changeIn(text: string | null, revision: number): string | null {
  const [named, change = ''] = /^(\d{1,16}):([0-9A-Za-z_-]{1,64})$/.exec(text ?? '')?.slice(1) ?? [];
  return Number(named) === revision ? change : null;
}

/**
 * A registry that was paused, and whose lease another one has, wakes with an older revision: gateways would take the store for one
 * that has lost changes. What is no revision is replaced.
 * KEYS: the revision, the change. ARGV: those to be published. Returns whether they were.
 */
export const unlessFurther = `
  local named = tonumber(redis.pcall('GET', KEYS[1]) or '')
  local isRevision = named and named % 1 == 0 and named <= ${highestRevision}
  if isRevision and named > tonumber(ARGV[1]) then return 0 end
  redis.call('SET', KEYS[2], ARGV[2])
  redis.call('SET', KEYS[1], ARGV[1])
  return 1`;
