import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import ts from 'typescript';
import { withoutRedis } from './adapters/redis-server.js';
import { Teardowns } from './deployment/teardowns.js';
import { filesOf, filesOfRevocation, traceWays, ways } from './trace/trace.js';

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

/** Which folders import which; `edge` and the folders of `edge` are examined separately. */
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

/** The rows of the table after a heading or sentence: folders and their imports. */
function tableBehind(begin: string): (readonly [rooms: string[], imports: string[]])[] {
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
    const told = tableBehind(begin).flatMap(([rooms, imports]) => rooms.map((room) => [room, imports] as const));
    t.same(Object.fromEntries(told), importsOf(roomOf), begin);
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

/** The files that a section of the page names, in order. */
function filesIn(heading: string): string[] {
  const [part = ''] = page.slice(page.indexOf(`## ${heading}`) + 3).split('\n## ');
  const [numbered = ''] = part.split('\nA denied request ends');
  return [...numbered.matchAll(/`([a-z0-9/-]+\.ts)`/g)].map(([, file = '']) => file);
}

t.test('the two documented paths match a trace', { skip: withoutRedis, timeout: 240_000 }, async (t) => {
  const own = new Teardowns();
  t.teardown(() => own.close());
  const { get } = ways;
  if (get === undefined) throw new Error('no traced path of a GET');
  const [trace] = await traceWays(own, [get]);
  const ran = trace === undefined ? [] : filesOf(trace);
  const told = filesIn('The way of a GET');
  t.ok(told.length > 20, 'the page names files');
  const unique = [...new Set(told)];
  t.same(
    unique.filter((file) => !ran.includes(file)),
    [],
    'each file runs in a GET',
  );
  // Earlier, Node calls back for each part of reading, and not every version has a traceable order.
  const ordered = unique.slice(unique.indexOf('edge/auth/steps.ts'));
  t.ok(ordered.length > 15, 'the steps are among them');
  t.same(
    ordered,
    ordered.toSorted((a, b) => ran.indexOf(a) - ran.indexOf(b)),
    'in this order from the steps on',
  );

  const revocation = await filesOfRevocation(own);
  t.same(
    filesIn('The way of a revocation').filter((file) => !revocation.has(file)),
    [],
    'each file runs in a revocation',
  );
});
