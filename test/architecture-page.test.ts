import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import ts from 'typescript';

const page = readFileSync('docs/architecture.md', 'utf8');

/** The source files and their imports, as paths below src. */
const sources = readdirSync('src', { recursive: true, encoding: 'utf8' })
  .filter((name) => /\.tsx?$/.test(name))
  .map((name) => ({
    name,
    imports: ts
      .preProcessFile(readFileSync(path.join('src', name), 'utf8'), true, true)
      .importedFiles.filter(({ fileName }) => fileName.startsWith('.'))
      .map(({ fileName }) => path.join(path.dirname(name), fileName)),
  }));

/**
 * The other rooms that the files of each room import. `roomOf` gives the room of a file, or null for a file to leave
 * out: the rooms of the source and those of `edge` are examined separately.
 */
function importsOf(roomOf: (file: string) => string | null): Record<string, string[]> {
  const found: Record<string, Set<string>> = {};
  for (const { name, imports } of sources) {
    const room = roomOf(name);
    if (room === null) continue;
    const others = (found[room] ??= new Set());
    for (const target of imports.map(roomOf)) if (target !== null && target !== room) others.add(target);
  }
  return Object.fromEntries(Object.entries(found).map(([room, others]) => [room, [...others].toSorted()]));
}

const roomOfSource = (file: string): string => file.split('/')[0] ?? '';
const roomOfEdge = (file: string): string | null =>
  file.startsWith('edge/') && file.split('/').length > 2 ? (file.split('/')[1] ?? null) : null;

/** The rows of the first table after this text of the page: rooms and the rooms that they import. */
function tableAfter(begin: string): (readonly [rooms: string[], imports: string[]])[] {
  const table = /\n(\|[^\n]*\n)+/.exec(page.slice(page.indexOf(begin)))?.[0] ?? '';
  return [...table.matchAll(/^\| (`[^|]*) \| [^|]* \| ([^|]*) \|$/gm)].map(([, rooms = '', imports = '']) => [
    [...rooms.matchAll(/`(\w+)`/g)].map(([, room = '']) => room),
    imports === '–' ? [] : imports.split(', '),
  ]);
}

t.test('the tables list what each folder imports', (t) => {
  for (const [begin, roomOf] of [
    ['## Rooms', roomOfSource],
    ['The rooms of `edge`', roomOfEdge],
  ] as const) {
    const listed = tableAfter(begin).flatMap(([rooms, imports]) => rooms.map((room) => [room, imports] as const));
    t.same(Object.fromEntries(listed), importsOf(roomOf), begin);
  }
  t.end();
});

t.test('in the diagram each folder is above the folders that it imports', (t) => {
  const picture = /^```\n( cli [\s\S]*?)^```/m.exec(page)?.[1] ?? '';
  const rows = picture.split('\n').map((row) => row.split(/\s{2,}/).map((word) => word.trim()));
  const rowOf = (room: string): number => rows.findIndex((words) => words.includes(room));
  for (const [room, others] of Object.entries(importsOf(roomOfSource))) {
    t.not(rowOf(room), -1, `${room} is in the diagram`);
    for (const other of others) t.ok(rowOf(other) > rowOf(room), `${room} is above ${other}`);
  }
  t.end();
});
