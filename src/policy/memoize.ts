/** Maximum length, in characters, of a text whose result is cached. Clients could fill the memory with longer texts. */
const longestText = 256;

/**
 * Caches the results of a function whose argument is a short, recurring text, such as a header name. The cache is
 * cleared when it has `most` entries, because clients could otherwise fill the memory with new texts.
 */
export function memoize<Result>(most: number, compute: (text: string) => Result): (text: string) => Result {
  const known = new Map<string, Result>();
  return (text) => {
    const remembered = known.get(text);
    if (remembered !== undefined) return remembered;
    const result = compute(text);
    if (text.length > longestText) return result;
    if (known.size >= most) known.clear();
    // V8 keeps the whole source of a slice in memory, for example a header of 16 KB, so the key is a copy.
    const copy = Buffer.from(text, 'latin1').toString('latin1');
    known.set(copy === text ? copy : text, result);
    return result;
  };
}
