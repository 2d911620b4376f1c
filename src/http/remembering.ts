const mostTexts = 1_000;
const longestText = 64;

/**
 * A function that remembers what it has found out about short texts which come again and again, as names of headers do.
 * It forgets all when there are too many, because callers choose them.
 */
export function remembering<Found>(findOut: (text: string) => Found): (text: string) => Found {
  const known = new Map<string, Found>();
  return (text) => {
    const remembered = known.get(text);
    if (remembered !== undefined) return remembered;
    const found = findOut(text);
    if (text.length > longestText) return found;
    if (known.size >= mostTexts) known.clear();
    known.set(text, found);
    return found;
  };
}
