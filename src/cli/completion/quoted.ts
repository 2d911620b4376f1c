/** Quotes a text as a single shell word in which the shell expands nothing. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
