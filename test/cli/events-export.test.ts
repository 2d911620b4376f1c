import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { EcsVersion } from '@elastic/ecs';
import t, { type Test } from 'tap';
import ts from 'typescript';
import { ecsLine } from '../../src/cli/admin/events/ecs-line.js';
import { run } from '../../src/cli/run.js';
import { registryAuthor } from '../../src/registry/events/author.js';
import { recordEvents } from '../../src/registry/events/repository.js';
import { eventFilters, eventSchema, type RegistryEvent } from '../../src/registry/events/schema.js';
import { killAtEnd, limitedCommand, productCommand } from '../product-command.js';
import { registryFixture, token } from '../registry/registry-fixture.js';
import { startServer } from '../start-server.js';
import { ran } from './ran.js';

interface Line {
  readonly '@timestamp': string;
  readonly ecs: { readonly version: string };
  readonly event: {
    readonly id: string;
    readonly action: string;
    readonly category: readonly string[];
    readonly type: readonly string[];
    readonly outcome: string;
    readonly sequence: number;
    readonly hash?: string;
  };
}

/** The `event.type` values that ECS allows for each `event.category`. */
const allowedTypes: Readonly<Record<string, readonly string[]>> = {
  authentication: ['end', 'info', 'start'],
  configuration: ['access', 'change', 'creation', 'deletion', 'info'],
  iam: ['admin', 'change', 'creation', 'deletion', 'group', 'info', 'user'],
};

function linesIn(text: string): Line[] {
  if (!text.endsWith('\n')) throw new Error('the last line does not end');
  return text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Line);
}

/** Runs `events export` against the registry at this URL. */
function exportAt(t: Test, url: string, ...args: string[]) {
  const file = `${t.testdirName}-token`;
  writeFileSync(file, token);
  return ran('events', 'export', '--registry', url, '--token-file', file, ...args);
}

async function fixture(t: Test) {
  const registry = await registryFixture(t, 'sqlite::memory:');
  const url = await registry.app.listen({ host: '127.0.0.1', port: 0 });
  return { ...registry, url, exporting: (...args: string[]) => exportAt(t, url, ...args) };
}

const author = {
  ...{ actor: 'ada', administratorId: 'adm_1', proof: 'token:tok_1', claimed: null },
  ...{ source: '198.51.100.7', requestId: 'request-1', reason: 'ticket 4711' },
};

t.test('each event is a line with the ECS fields that the document lists, oldest first', async (t) => {
  const { database, exporting } = await fixture(t);
  const event = { action: 'merchant.changed', merchantId: 'm_1', keyId: 'key_1' } as const;
  const events = [{ ...event, before: { name: 'a' }, after: { name: 'b' } }];
  await recordEvents(database, events, { at: Date.UTC(2026, 0, 2, 3, 4, 5, 6), author, revision: 7 });
  const { status, out, err } = await exporting();
  t.equal(status, 0, err);
  const [first, second, ...others] = linesIn(out);
  t.same(others, []);
  const { hash = '', ...named } = first?.event ?? ({} as Line['event']);
  t.match(hash, /^[0-9a-f]{64}$/);
  t.same(
    { ...first, event: named },
    {
      '@timestamp': '2026-01-02T03:04:05.006Z',
      ecs: { version: EcsVersion },
      event: {
        ...{ id: hash, dataset: 'gateway.events', kind: 'event', category: ['configuration'], type: ['change'] },
        ...{ action: 'merchant.changed', outcome: 'success', reason: 'ticket 4711', sequence: 1 },
      },
      user: { id: 'adm_1', name: 'ada' },
      source: { ip: '198.51.100.7' },
      http: { request: { id: 'request-1' } },
      organization: { id: 'm_1' },
      gateway: {
        ...{ key: { id: 'key_1' }, revision: 7, proof: 'token:tok_1' },
        ...{ before: '{"name":"a"}', after: '{"name":"b"}' },
      },
    },
  );
  t.match(second, { event: { action: 'events.exported', sequence: 2 }, user: { name: 'bootstrap' } });
  t.equal(err, '2 events exported, up to sequence number 2. To export newer events later, use --after 2.\n');
});

/** The names of all members of a line, such as `event.id`. */
function namesIn(value: unknown, above = ''): string[] {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return [above];
  return Object.entries(value).flatMap(([name, member]) => namesIn(member, above === '' ? name : `${above}.${name}`));
}

t.test('the document has exactly the fields of the lines, and exactly the filters', async (t) => {
  const text = readFileSync('docs/administrators.md', 'utf8');
  const tableBehind = (heading: string): string[] => {
    const [, rest = ''] = text.split(heading);
    return (rest.split('\n\n')[0] ?? '').split('\n').slice(2);
  };
  const codesIn = (cell: string | undefined): string[] =>
    [...(cell ?? '').matchAll(/`([^`]+)`/g)].map(([, code]) => code ?? '');
  const fields = tableBehind('| field of ECS | what it is |').flatMap((row) => codesIn(row.split('|')[1]));
  const base = { seq: 1, at: '', actor: 'a', action: 'key.reset', merchantId: 'm', keyId: 'k', before: {}, after: {} };
  const more = { administratorId: 'a', proof: 'p', claimed: 'c', source: 's', requestId: 'r', reason: 'r' };
  const line: unknown = JSON.parse(ecsLine({ ...base, ...more, revision: 1, hash: 'h' }));
  t.same(fields.toSorted(), namesIn(line).toSorted());
  const { out: help } = await ran('events', 'export', '--help');
  const rows = tableBehind('| option | parameter of `GET /events` | field |');
  const options = rows.flatMap((row) => codesIn(row.split('|')[1]));
  const parameters = rows.flatMap((row) => codesIn(row.split('|')[2]));
  t.same(options.toSorted(), [...help.matchAll(/^ +(--[a-z-]+) .* {2}only /gm)].map(([, option]) => option).toSorted());
  t.same(parameters.toSorted(), Object.keys(eventFilters).toSorted());
});

t.test('every action has values that ECS allows, and failures are marked', (t) => {
  const base: RegistryEvent = {
    ...{ seq: 1, at: '2026-01-02T03:04:05.006Z', actor: 'ada', action: 'key.reset', merchantId: 'm_1', keyId: 'key_1' },
    ...{ before: null, after: { name: 'x' }, revision: 1, administratorId: 'adm_1', proof: 'token:tok_1' },
    ...{ claimed: 'bea', source: '2001:db8::7', requestId: 'r', reason: 'x' },
  };
  const actions = eventSchema.properties.action.enum;
  const lines = [...actions, 'key.polished'].map((action) => ecsLine({ ...base, action, hash: 'a'.repeat(64) }));
  const bare = { ...base, merchantId: '', keyId: null, after: null, administratorId: null, proof: null };
  const old = ecsLine({ ...bare, claimed: null, source: null, requestId: null, reason: null, hash: null });
  t.equal(
    old,
    `{"@timestamp":"2026-01-02T03:04:05.006Z","ecs":{"version":"${EcsVersion}"},"event":{"id":"1","dataset":"gateway.events",` +
      '"kind":"event","category":["iam"],"type":["change"],"action":"key.reset","outcome":"success","sequence":1},' +
      '"user":{"name":"ada"},"gateway":{"revision":1}}',
  );
  const folder = t.testdir({});
  const typed = [...lines, old].map((text, index) => {
    const line = { ...(JSON.parse(text) as object), gateway: undefined };
    return `export const line${index}: Ecs = ${JSON.stringify(line)};`;
  });
  writeFileSync(`${folder}/lines.ts`, `import type { Ecs } from '@elastic/ecs';\n${typed.join('\n')}\n`);
  const options = { noEmit: true, strict: true, skipLibCheck: true, moduleResolution: ts.ModuleResolutionKind.Bundler };
  const program = ts.createProgram([`${folder}/lines.ts`], { ...options, module: ts.ModuleKind.ESNext, types: [] });
  const problems = ts
    .getPreEmitDiagnostics(program)
    .map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n'));
  t.same(problems, []);
  const failures = [];
  for (const { event } of lines.map((line) => JSON.parse(line) as Line)) {
    const [category = ''] = event.category;
    t.same(
      event.type.filter((type) => allowedTypes[category]?.includes(type) !== true),
      [],
      event.action,
    );
    if (event.outcome === 'failure') failures.push(event.action);
  }
  t.same(failures.toSorted(), ['approval.refused', 'attempt.refused', 'record.forged', 'sign-in.failed']);
  t.end();
});

t.test(
  'the filters of a list also filter an export, and an invalid one is a usage error without an event',
  async (t) => {
    const { createMerchant, database, exporting } = await fixture(t);
    const { id } = await createMerchant();
    await createMerchant();
    const actions = async (...args: string[]): Promise<string[]> =>
      linesIn((await exporting(...args)).out).map(({ event }) => event.action);
    t.same(await actions('--merchant', id), ['merchant.created']);
    t.same(await actions('--who', 'bootstrap', '--action', 'merchant.created'), [
      'merchant.created',
      'merchant.created',
    ]);
    t.same((await exporting('--who', 'nobody')).out, '');
    const before = (await database.selectFrom('events').selectAll().execute()).length;
    const file = `${t.testdir({})}/new`;
    const cases: [args: string[], sentence: RegExp][] = [
      [['--since', 'yesterday'], /^error: --since must be a date and time with its zone/],
      [
        ['--since', '2026-01-02T00:00:00Z', '--until', '2026-01-01T00:00:00Z'],
        /^error: --until must be later than since/,
      ],
      [['--source', '10.0.0.0/8'], /^error: --source must be an IP address/],
      [['--who', 'a b'], /^error: --who must be a name of 1 to 64/],
      [['--request', '.'], /^error: --request must be the id of an HTTP request/],
      [['--given-reason', ''], /^error: --given-reason must be a text of 1 to 200/],
      [['--administrator', '.'], /^error: --administrator must be the id/],
      [['--action', 'key.stolen'], /^error: --action must be one of merchant\.created, /],
      [['--after', '-1'], /Expected the sequence number of an event/],
      [['--request', `svc_live_${'k'.repeat(49)}`], /this is an API key or a token, not an id/],
    ];
    for (const [args, sentence] of cases) {
      const { status, out, err } = await exporting('--output', file, ...args);
      t.same({ status, out }, { status: 2, out: '' }, args.join(' '));
      t.match(err, sentence);
      t.notOk(existsSync(file), 'no empty file stays');
    }
    t.equal((await database.selectFrom('events').selectAll().execute()).length, before);
  },
);

t.test('--output creates a file for the owner alone, and never overwrites one', async (t) => {
  const { createMerchant, database, exporting } = await fixture(t);
  await createMerchant();
  const directory = t.testdir({ other: 'kept', linked: t.fixture('symlink', 'other') });
  const file = `${directory}/events.ndjson`;
  t.match(await exporting('--output', file), {
    status: 0,
    out: '',
    err: /^2 events exported, up to sequence number 2\./,
  });
  t.equal(statSync(file).mode & 0o777, 0o600);
  const text = readFileSync(file, 'utf8');
  t.equal(linesIn(text).length, 2);
  for (const taken of [file, `${directory}/other`, `${directory}/linked`]) {
    const { status, err } = await exporting('--output', taken);
    t.equal(status, 1);
    t.match(err, `Cannot create ${taken}: it exists already; give another name.\n`);
  }
  t.equal(readFileSync(file, 'utf8'), text);
  t.equal(readFileSync(`${directory}/other`, 'utf8'), 'kept');
  t.match(await exporting('--output', `${directory}/none/x`), {
    status: 1,
    err: /Cannot create .*: the directory does not exist\.\n$/,
  });
  t.equal(
    (await database.selectFrom('events').selectAll().execute()).length,
    2,
    'only the export that began is an event',
  );
});

/**
 * A registry whose events have the sequence numbers `seqs`. It sends `pages` pages of two events, and then responds
 * with 503.
 */
function failingRegistry(t: Test, pages: number, seqs: readonly number[]): Promise<string> {
  const event = {
    ...{ at: '2026-01-02T03:04:05.006Z', actor: 'ada', action: 'key.reset', merchantId: 'm_1', keyId: null },
    ...{ before: null, after: null, revision: 1, hash: null },
  };
  let asked = 0;
  return startServer(t, (request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '', 'http://x');
    const after = Number(searchParams.get('after'));
    const begun = pathname === '/events/exports';
    if (!begun) asked += 1;
    const next = seqs.filter((seq) => seq > after).slice(0, 2);
    const last = next.at(-1) ?? after;
    const data = begun
      ? { seq: seqs.at(-1), after }
      : { events: next.map((seq) => ({ ...event, seq })), next: last === seqs.at(-1) ? null : last };
    const isAway = asked > pages;
    response.writeHead(isAway ? 503 : 200, { 'content-type': 'application/json' });
    response.end(JSON.stringify(isAway ? { success: false, message: 'Away', data: null } : { success: true, data }));
  });
}

t.test('an export that fails midway keeps whole pages, and names where to continue', async (t) => {
  const seqs = [3, 4, 7, 9, 12];
  const directory = t.testdir({});
  const away = await failingRegistry(t, 2, seqs);
  const file = `${directory}/first`;
  const { status, err } = await exportAt(t, away, '--output', file);
  t.equal(status, 1);
  t.match(err, /status 503\): Away\..*\nThe export is incomplete\. To export the missing events, use --after 9\.\n$/);
  t.same(
    linesIn(readFileSync(file, 'utf8')).map(({ event }) => event.sequence),
    [3, 4, 7, 9],
  );
  const back = await failingRegistry(t, Infinity, seqs);
  const rest = await exportAt(t, back, '--after', '9');
  t.equal(rest.status, 0);
  t.same(
    linesIn(rest.out).map(({ event }) => event.sequence),
    [12],
  );
  const first = await exportAt(t, await failingRegistry(t, 0, seqs));
  t.match(first, { status: 1, out: '', err: /To export the missing events, use --after 0\.\n$/ });
});

t.test('Ctrl-C leaves whole pages in the file, and names where to continue', async (t) => {
  const event = {
    ...{ at: '2026-01-02T03:04:05.006Z', actor: 'ada', action: 'key.reset', merchantId: 'm_1', keyId: null },
    ...{ before: null, after: null, revision: 1, hash: null },
  };
  let exporting: ChildProcess | null = null;
  // Sends pages until the command stops.
  const url = await startServer(t, (request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '', 'http://x');
    const after = Number(searchParams.get('after'));
    if (after === 3) exporting?.kill('SIGINT');
    const seq = after + 1;
    const data =
      pathname === '/events/exports' ? { seq: 999_999_999, after } : { events: [{ ...event, seq }], next: seq };
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ success: true, data }));
  });
  const directory = t.testdir({ token });
  const file = `${directory}/events`;
  const args = ['events', 'export', '--registry', url, '--token-file', `${directory}/token`, '--output', file];
  const child = spawn(...productCommand(args), { stdio: ['ignore', 'ignore', 'pipe'] });
  exporting = child;
  killAtEnd(t, child);
  let err = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text));
  t.same(await once(child, 'close'), [130, null]);
  const last = linesIn(readFileSync(file, 'utf8')).at(-1)?.event.sequence ?? 0;
  t.ok(last >= 3);
  t.equal(err, `Interrupted.\nThe export is incomplete. To export the missing events, use --after ${last}.\n`);
});

t.test('a full disk leaves whole pages in the file, and the export continues after them', async (t) => {
  const { database, exporting, url } = await fixture(t);
  const event = { action: 'merchant.changed', merchantId: 'm_1', keyId: null, before: null, after: null } as const;
  const events = Array.from({ length: 1200 }, () => event);
  await database
    .transaction()
    .execute((transaction) => recordEvents(transaction, events, { at: 0, author: registryAuthor, revision: 1 }));
  const directory = t.testdir({ token });
  const file = `${directory}/events`;
  const { out } = await exporting();
  const all = linesIn(out).map(({ event }) => event.sequence);
  const args = ['events', 'export', '--registry', url, '--token-file', `${directory}/token`, '--output', file];
  // File size limit in KiB: room for one page, and for a part of the next one.
  const limit = Math.ceil((1.5 * 500 * (out.length / all.length)) / 1024);
  const child = spawn(...limitedCommand(limit, args), { stdio: ['ignore', 'pipe', 'pipe'] });
  let err = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text));
  const [status] = (await once(child, 'close')) as [number];
  t.equal(status, 1);
  t.match(
    err,
    /^Cannot write to .*: EFBIG\.\nThe export is incomplete\. To export the missing events, use --after 500\.\n$/,
  );
  const written = linesIn(readFileSync(file, 'utf8')).map(({ event }) => event.sequence);
  t.same(written, all.slice(0, 500));
  const rest = linesIn((await exporting('--after', '500')).out).map(({ event }) => event.sequence);
  t.same(rest.slice(0, 701), all.slice(500));
});

t.test('a registry that repeats a page ends the export with an error', async (t) => {
  const url = await startServer(t, (request, response) => {
    const data = request.method === 'POST' ? { seq: 9, after: 0 } : { events: [], next: 0 };
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ success: true, data }));
  });
  const { status, err } = await exportAt(t, url);
  t.equal(status, 1);
  t.match(err, 'The registry sent the same page twice.');
});

t.test('on a terminal standard error shows the progress, and never the events', async (t) => {
  const { database, url } = await fixture(t);
  const event = { action: 'merchant.changed', merchantId: 'm_1', keyId: null, before: null, after: null } as const;
  const events = Array.from({ length: 501 }, () => event);
  await database
    .transaction()
    .execute((transaction) => recordEvents(transaction, events, { at: 0, author: registryAuthor, revision: 1 }));
  let [out, err] = ['', ''];
  const io = { out: (text: string) => (out += text), err: (text: string) => (err += text), isTerminal: true };
  const file = `${t.testdir({ token })}/token`;
  t.equal(await run(['events', 'export', '--registry', url, '--token-file', file], io), 0);
  t.equal(linesIn(out).length, 502);
  const end = '502 events exported, up to sequence number 502. To export newer events later, use --after 502.';
  t.equal(err, `\r500 events exported\r502 events exported\r${end}\n`);
});
