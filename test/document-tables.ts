/** The cells of the table with these columns, row by row. */
export function tableOf(text: string, ...columns: string[]): string[][] {
  const table: string[][] = [];
  let state: 'before' | 'within' | 'after' = 'before';
  for (const line of text.split('\n')) {
    const cells = line.startsWith('|') ? line.split('|').slice(1, -1) : [];
    const row = cells.map((cell) => cell.trim());
    if (state === 'within' && row.length === 0) state = 'after';
    if (state === 'within' && row[0] !== '---') table.push(row);
    if (state === 'before' && row.join() === columns.join()) state = 'within';
  }
  return table;
}
