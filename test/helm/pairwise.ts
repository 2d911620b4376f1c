/** The dimensions of a configuration, each with its named alternatives. */
export type Dimensions = Readonly<Record<string, Readonly<Record<string, object>>>>;

/** One alternative for each dimension, by name. */
export type Combination = Readonly<Record<string, string>>;

/** Every pair of alternatives in a combination, as text. */
export function pairsOf(combination: Combination): string[] {
  const chosen = Object.entries(combination);
  return chosen.flatMap((one, index) => chosen.slice(index + 1).map((other) => `${one.join('=')}|${other.join('=')}`));
}

/** Combinations that together cover every pair of alternatives of two dimensions; deterministic. */
export function pairwise(dimensions: Dimensions): Combination[] {
  const names = Object.keys(dimensions);
  const waysOf = (name: string): string[] => Object.keys(dimensions[name] ?? {});
  const left = new Set<string>();
  names.forEach((one, index) => {
    for (const other of names.slice(index + 1))
      for (const way of waysOf(one))
        for (const otherWay of waysOf(other)) left.add(`${one}=${way}|${other}=${otherWay}`);
  });
  const combinations: Combination[] = [];
  while (left.size > 0) {
    // Start with an uncovered pair; in each other dimension choose the alternative that covers most uncovered pairs.
    const [first = ''] = left;
    let chosen: Combination = Object.fromEntries(
      first.split('|').map((one): [string, string] => one.split('=') as [string, string]),
    );
    for (const name of names.filter((one) => !(one in chosen))) {
      const gainOf = (way: string): number => newPairs({ ...chosen, [name]: way }).length;
      const turn = combinations.length;
      const ways = waysOf(name);
      const rotated = ways.map((_, index) => ways[(index + turn) % ways.length] ?? '');
      const [best = ''] = rotated.toSorted((one, other) => gainOf(other) - gainOf(one));
      chosen = { ...chosen, [name]: best };
    }
    const ordered = Object.fromEntries(names.map((name) => [name, chosen[name] ?? '']));
    for (const pair of pairsOf(ordered)) left.delete(pair);
    combinations.push(ordered);
  }
  return combinations;

  function newPairs(partial: Combination): string[] {
    return pairsOf(
      Object.fromEntries(names.filter((name) => name in partial).map((name) => [name, partial[name] ?? ''])),
    ).filter((pair) => left.has(pair));
  }
}
