/** Quotes a text as one shell word without expansion. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
