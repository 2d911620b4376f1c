/** In characters: a longer text is not kept. Callers choose most of these texts. */
const longestText = 256;

/**
 * A function of short texts that come again and again, such as names of headers, which remembers its results. It forgets all of
 * them when there are more than `most`: callers could fill anything that only grows.
 */
export function memoize<Result>(most: number, compute: (text: string) => Result): (text: string) => Result {
  const known = new Map<string, Result>();
  return (text) => {
    const remembered = known.get(text);
    if (remembered !== undefined) return remembered;
    const result = compute(text);
    if (text.length > longestText) return result;
    if (known.size >= most) known.clear();
    known.set(text, result);
    return result;
  };
}
