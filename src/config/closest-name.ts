/** Returns the candidate that a misspelt name probably means; undefined if no candidate is similar. */
export function closestName(name: string, candidates: readonly string[]): string | undefined {
  const limit = Math.max(1, Math.floor(name.length / 4));
  // Options for secrets take the path of a file, so `password` probably means `passwordFile`.
  const longer = candidates.find((candidate) => plain(candidate) === `${plain(name)}file`);
  if (longer !== undefined) return longer;
  let best: string | undefined;
  let bestDistance = limit + 1;
  for (const candidate of candidates) {
    const distance = editDistance(plain(name), plain(candidate));
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance];
  }
  return best;
}

/**
 * Normalises a name for comparison: `cert_file`, `cert-file` and `CertFile` all become `certfile`. Keeps only the first
 * 64 characters, because the time of a comparison grows with the length of both names.
 */
function plain(name: string): string {
  return name.slice(0, 64).toLowerCase().replaceAll(/[_-]/g, '');
}

/** Returns the Levenshtein distance of two texts. */
function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (let index = 0; index < from.length; index++) {
    const next = [index + 1];
    for (let column = 1; column <= to.length; column++) {
      const replaced = (row[column - 1] ?? 0) + (from[index] === to[column - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[column] ?? 0) + 1, (next[column - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}
