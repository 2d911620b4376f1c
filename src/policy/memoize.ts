/** Longest cached text in characters. Most of these texts are chosen by callers. */
const longestText = 256;

/**
 * Memoizes a function of short recurring texts, such as header names. Clears all results once there are `most`, because
 * callers could otherwise fill the memory.
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
