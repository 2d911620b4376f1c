import { readFileSync, writeFileSync } from 'node:fs';
import t from 'tap';
import { run } from '../src/cli/run.js';
import { gatewayErrors } from '../src/http/errors.js';
import { denials } from '../src/policy/denials.js';
import { openLog } from './telemetry/open-log.js';
import { ask, connect, exchangeBytes, liveKey, startTestGateway, startUpstream } from './http/harness.js';

const readme = readFileSync('README.md', 'utf8');

/** The cells of the table with these columns, row by row. */
function tableOf(text: string, ...columns: string[]): string[][] {
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

t.test("the README's error tables are the code's, row for row and in its order", (t) => {
  const told = tableOf(readme, 'code', 'status', 'message', 'what to fix');
  t.same(
    told.map(([code, status, message]) => ({ code, status, message })),
    denials.map(({ code, status, message }) => ({ code: `\`${code}\``, status: String(status), message })),
  );
  const errors = tableOf(readme, 'code', 'status', 'message', 'when');
  t.same(
    errors.map(([code, status, message]) => [code, status, message]),
    Object.entries(gatewayErrors).map(([code, { status, message }]) => [`\`${code}\``, String(status), message]),
  );
  t.ok(
    [...told, ...errors].every((row) => (row[3] ?? '').length > 5),
    'and each says what to do or when',
  );
  t.end();
});

t.test('the README names every command and no other', async (t) => {
  let help = '';
  const told = tableOf(readme, 'command', 'what it does').map(([command = '']) => command.replaceAll('`', ''));
  for (const command of told) {
    const args = command.split(' ').slice(1);
    help = '';
    await run([...args, '--help'], { out: (text) => (help += text), err: () => undefined });
    t.match(help, new RegExp(`^Usage: ${command}[ \n]`), command);
  }
  help = '';
  await run(['--help'], { out: (text) => (help += text), err: () => undefined });
  const commands = help.slice(help.indexOf('Commands:')).matchAll(/^ {2}([a-z]+) /gm);
  const known = new Set([...commands].map(([, name]) => name).filter((name) => name !== 'help'));
  t.same(known, new Set(told.map((command) => command.split(' ')[1])));
});

t.test('the links of the documents lead somewhere', (t) => {
  for (const file of [
    'README.md',
    'tor-exit-list/README.md',
    'docs/records.md',
    'docs/audit-log.md',
    'docs/monitoring.md',
    'docs/services.md',
    'docs/registry.md',
  ]) {
    const folder = new URL(`../${file}`, import.meta.url);
    for (const [, target = ''] of readFileSync(file, 'utf8').matchAll(/\]\((?!#|https?:)([^)#]+)\)/g)) {
      t.doesNotThrow(() => {
        try {
          readFileSync(new URL(target, folder));
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== 'EISDIR') throw error;
        }
      }, `${file}: ${target}`);
    }
  }
  t.end();
});

/** The dotted names of everything in a line. */
function fieldsOf(value: unknown, name = ''): string[] {
  if (value === undefined) return [];
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return [name];
  return Object.entries(value).flatMap(([key, part]) => fieldsOf(part, name === '' ? key : `${name}.${key}`));
}

t.test('the audit log document names the fields of the lines, all of them and no other', async (t) => {
  const upstream = await startUpstream(t);
  const file = `${t.testdir()}/access.log`;
  writeFileSync(file, 'a broken line');
  const accessLog = openLog(file);
  const logSecret = Buffer.from('a secret of this test');
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, accessLog, logSecret });
  const headers = [
    ['x-api-key', liveKey],
    ['user-agent', 'test'],
  ] as const;
  await ask(gateway, { headers });
  await ask(gateway, { headers, path: '/nowhere' });
  await exchangeBytes(connect(gateway.https, gateway.ca), 'garbage\r\n\r\n');
  await gateway.drain();
  const lines = readFileSync(file, 'utf8').trimEnd().split('\n').slice(1);
  const written = new Set(
    lines.flatMap((line) => fieldsOf(JSON.parse(line))).map((name) => name.replace(/(?<=predecessor)\..*/, '')),
  );
  const rows = tableOf(readFileSync('docs/audit-log.md', 'utf8'), 'field', 'what it is');
  const documented = new Set(rows.flatMap(([names = '']) => names.replaceAll('`', '').split(', ')));
  t.same([...documented].toSorted(), [...written].toSorted());
});

t.test('the monitoring document, the dashboard and the alert rules name metrics that are there', async (t) => {
  const gateway = await startTestGateway(t);
  const text = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  const metrics = [...text.matchAll(/^# TYPE (\w+) /gm)].map(([, name = '']) => name);
  const own = metrics.filter((name) => name.startsWith('gateway_'));
  const rows = tableOf(readFileSync('docs/monitoring.md', 'utf8'), 'metric', 'labels', 'what it is');
  t.same(rows.map(([name = '']) => name.replaceAll('`', '')).toSorted(), own.toSorted(), 'each has its row');
  for (const file of ['docs/monitoring/grafana-dashboard.json', 'docs/monitoring/prometheus-rules.yaml']) {
    const used = readFileSync(file, 'utf8').match(/\b(?:gateway|nodejs)_\w+/g) ?? [];
    const unknown = used.filter((name) => !metrics.includes(name.replace(/_(?:bucket|count|sum)$/, '')));
    t.ok(used.length > 10, file);
    t.same(unknown, [], file);
  }
  t.ok(JSON.parse(readFileSync('docs/monitoring/grafana-dashboard.json', 'utf8')));
});
