/** A text as one word of a shell, of which nothing is expanded. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
