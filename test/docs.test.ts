import { readdirSync, readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import t from 'tap';
import ts from 'typescript';
import { run } from '../src/cli/run.js';
import { permissions } from '../src/config/schema/permissions.js';
import { revealingNoKey } from '../src/edge/auth/bad-key-throttle.js';
import { gatewayErrors } from '../src/policy/gateway-errors.js';
import { reservedNames } from '../src/edge/request/reserved-headers.js';
import { denials } from '../src/policy/decision-table.js';
import { remedies, remedyOf } from '../src/policy/remedies.js';
import { permits, roleNames } from '../src/registry/administrators/roles.js';
import { failureCodeEntries } from '../src/services/failure-codes.js';
import { ServerTls } from '../src/tls/server-tls.js';
import { makeCertificate } from './edge/certificates.js';
import { registryFixture } from './registry/registry-fixture.js';
import { servicesFixture } from './services/services-fixture.js';
import { everyKindOfLine } from './edge/every-kind-of-line.js';
import { startTestGateway } from './edge/harness.js';
import { medianWords, sentencesOf } from './prose.js';
import { tableOf } from './document-tables.js';

const readme = readFileSync('README.md', 'utf8');

t.test("the README's error tables match the code, row for row and in order", (t) => {
  const documented = tableOf(readme, 'code', 'status', 'message', 'what to fix');
  t.same(
    documented.map(([code, status, message]) => ({ code, status, message })),
    denials.map(({ code, status, message }) => ({ code: `\`${code}\``, status: String(status), message })),
  );
  const errors = tableOf(readme, 'code', 'status', 'message', 'when');
  t.same(
    errors.map(([code, status, message]) => [code, status, message]),
    Object.entries(gatewayErrors).map(([code, { status, message }]) => [`\`${code}\``, String(status), message]),
  );
  t.ok(
    [...documented, ...errors].every((row) => (row[3] ?? '').length > 5),
    'each row says what to do or when',
  );
  t.same(
    documented.map((row) => row[3]),
    denials.map(({ code }) => remedies[code].remedy),
  );
  t.same(
    errors.map((row) => row[3]),
    Object.keys(gatewayErrors).map((code) => remedyOf(code)?.meaning),
  );
  t.end();
});

t.test('docs/edge.md names the denials that even a throttled source receives unchanged', (t) => {
  const [, named = ''] = /These denials stay unchanged: ([^.]+)\./.exec(readFileSync('docs/edge.md', 'utf8')) ?? [];
  t.same(named.match(/[a-z]+_[a-z]+/g), [...revealingNoKey]);
  t.end();
});

t.test('docs/errors.md has one section for each code, with the texts of the table', (t) => {
  const [, ...sections] = readFileSync('docs/errors.md', 'utf8').split(/^## /m);
  const responses: Readonly<Record<string, { readonly status: number; readonly message: string }>> = {
    ...Object.fromEntries(denials.map((denial) => [denial.code, denial])),
    ...gatewayErrors,
  };
  const who = { merchant: 'the merchant', operator: 'the operator', both: 'merchant and operator' };
  t.same(
    sections.map((section) => section.trimEnd()),
    Object.entries(remedies).map(([code, { meaning, remedy, concerns }]) => {
      const { status, message } = responses[code] ?? { status: 0, message: '' };
      const lines = [
        `${status} ${message}. ${meaning}`,
        `- **What to do:** ${remedy}`,
        `- **Concerns:** ${who[concerns]}.`,
      ];
      return `\`${code}\`\n\n${lines[0] ?? ''}\n\n${lines.slice(1).join('\n')}`;
    }),
  );
  t.end();
});

t.test('the documented error codes of the services match the code, row for row and in order', (t) => {
  const documented = tableOf(readFileSync('docs/services.md', 'utf8'), 'code', 'status', 'when');
  t.same(
    documented,
    failureCodeEntries.map(([code, { status, meaning }]) => [`\`${code}\``, String(status), meaning]),
  );
  t.end();
});

t.test('the documented table of roles matches the code', (t) => {
  const table = tableOf(readFileSync('docs/administrators.md', 'utf8'), 'permission', ...roleNames);
  t.same(
    table,
    permissions.map((one) => [`\`${one}\``, ...roleNames.map((role) => (permits([role], one) ? 'yes' : ''))]),
  );
  t.end();
});

t.test('the documented list of headers that no upstream receives matches the code', (t) => {
  const rows = tableOf(readFileSync('docs/edge.md', 'utf8'), 'removed', 'because');
  const named = rows.flatMap(([removed = '']) => Array.from(removed.matchAll(/`([^`]+)`/g), ([, name]) => name));
  t.same(new Set(named), new Set(reservedNames));
  t.end();
});

/** The help of a command. */
async function helpOf(...words: string[]): Promise<string> {
  let help = '';
  await run([...words, '--help'], { out: (text) => (help += text), err: () => undefined });
  return help;
}

/** The names of the commands that a help lists. */
function namesIn(help: string): string[] {
  const [, list = ''] = /^Commands:\n((?: .*\n)+)/m.exec(help) ?? [];
  return [...list.matchAll(/^ {2}([a-z-]+) /gm)].map(([, name = '']) => name).filter((name) => name !== 'help');
}

t.test('the command document has exactly the existing commands, and names those without --config', async (t) => {
  const page = readFileSync('docs/commands.md', 'utf8');
  const known: string[] = [];
  for (const first of namesIn(await helpOf())) {
    const inner = namesIn(await helpOf(first));
    known.push(...(inner.length === 0 ? [first] : inner.map((second) => `${first} ${second}`)));
  }
  const documented = tableOf(page, 'command', 'what it does').map(([command = '']) => command.replaceAll('`', ''));
  t.same(documented.toSorted(), known.map((name) => `merchant-gateway ${name}`).toSorted());

  const without: string[] = [];
  for (const name of known) {
    const help = await helpOf(...name.split(' '));
    t.match(help, new RegExp(`^Usage: merchant-gateway ${name}[ \n]`), name);
    if (!help.includes('--config <file>')) without.push(name);
  }
  const [, exceptions = ''] = /takes `--config FILE`, except [^:]*: (.*)\.$/m.exec(page) ?? [];
  t.same([...exceptions.matchAll(/`([^`]+)`/g)].map(([, name = '']) => name).toSorted(), without.toSorted());
});

t.test('the links of the documents resolve', (t) => {
  for (const file of [
    'README.md',
    'SECURITY.md',
    'tor-exit-list/README.md',
    'docs/records.md',
    'docs/audit-log.md',
    'docs/edge.md',
    'docs/errors.md',
    'docs/monitoring.md',
    'docs/connections.md',
    'docs/services.md',
    'docs/registry.md',
    'docs/failure-modes.md',
    'docs/benchmarks.md',
    'docs/benchmarks/tables.md',
    'docs/benchmarks/findings.md',
    'docs/benchmarks/runs.md',
    'docs/benchmarks/method.md',
    'docs/commands.md',
    'docs/walk-through.md',
    'docs/contributing.md',
    'docs/architecture.md',
    'docs/operations.md',
    'docs/security.md',
    'helm/README.md',
  ]) {
    const folder = pathToFileURL(file);
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

// After a migration, the registry and services of the previous release cannot start. A restored database of the
// services lacks the latest payouts, so a repeated request for one of them pays it twice.
t.test('the documented upgrade is not rolled back by Helm, and the rollback concerns only gateways', (t) => {
  const [, section = ''] =
    /^## Upgrade and rollback\n([^]*?)\n## /m.exec(readFileSync('docs/operations.md', 'utf8')) ?? [];
  const commands = [...section.matchAll(/```sh\n([^]*?)```/g)].map(([, block = '']) => block).join('\n');
  t.match(commands, /^helm -n payments upgrade .* --wait /m);
  t.notMatch(commands, /--atomic|--rollback-on-failure|helm [^\n]*rollback|rollout undo/);
  const [, rollback = ''] = section.split('\nTo roll back:\n');
  t.match(rollback, /Never restore the services' database/);
  t.match(rollback, /delete deployment,service gateway-merchant-gateway-registry\n[^]*`component=registry`/);
  t.end();
});

t.test('README and benchmarks are short', (t) => {
  const linesOf = (file: string): string[] => readFileSync(file, 'utf8').trimEnd().split('\n');
  t.ok(linesOf('README.md').length <= 200, `README.md has ${linesOf('README.md').length} lines`);
  const benchmarks = linesOf('docs/benchmarks.md');
  t.ok(benchmarks.length <= 125, `docs/benchmarks.md has ${benchmarks.length} lines`);
  t.same(
    benchmarks.filter((line) => line.length > 120),
    [],
    'no line is longer than 120 characters',
  );
  t.end();
});

t.test('sentences of the documents have at most 40 words, half of them at most 16', (t) => {
  const pages = readdirSync('docs').filter((name) => name.endsWith('.md'));
  const documents = ['README.md', 'SECURITY.md', 'helm/README.md', ...pages.map((name) => `docs/${name}`)];
  for (const file of documents) {
    const sentences = sentencesOf(readFileSync(file, 'utf8'));
    const tooLong = sentences.filter(({ words }) => words > 40).map(({ words, text }) => `${words} words: ${text}`);
    const median = medianWords(sentences);
    t.ok(sentences.length > 10, `${file} has sentences`);
    t.same(tooLong, [], file);
    t.ok(median <= 16, `${file}: the median is ${median} words`);
  }
  t.end();
});

t.test('the failure modes name existing codes, responses, metrics and log lines', (t) => {
  const page = readFileSync('docs/failure-modes.md', 'utf8');
  const source = readdirSync('src', { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => readFileSync(`${entry.parentPath}/${entry.name}`, 'utf8'))
    .join('\n');
  const responses = new Map([
    ...denials.map(({ code, status, message }): [string, string] => [code, `${status} ${message}`]),
    ...Object.entries(gatewayErrors).map(([code, { status, message }]): [string, string] => [
      code,
      `${status} ${message}`,
    ]),
  ]);
  let [codes, quotations] = [0, 0];
  for (const line of page.split('\n').filter((one) => one.startsWith('| '))) {
    const row = line.split('|').slice(1, -1);
    const [code = ''] = /^`[a-z_]+`(?=$)/.exec(row[2]?.trim() ?? '') ?? [];
    if (code !== '') {
      codes += 1;
      const response = responses.get(code.replaceAll('`', ''));
      t.ok(
        response !== undefined && (line.includes(response) || row[1]?.trim() === 'the same'),
        `${code}: ${response ?? ''}`,
      );
    }
    for (const [, response = ''] of line.matchAll(/\b([45]\d\d [A-Z][A-Za-z ]+?)(?= *[,;|.)])/g)) {
      t.ok([...responses.values()].includes(response), `"${response}" is a response of the gateway`);
    }
    // The page quotes log lines, sentences and /readyz texts from the source; … marks the variable parts.
    const quoted = row
      .join('|')
      .split('`')
      .filter((_, index) => index % 2 === 1);
    for (const part of quoted.filter((one) => one.includes(' ')).flatMap((one) => one.split('\u2026'))) {
      const words = part.replace(/^(?:key store|access log): /, '').trim();
      if (words === '') continue;
      quotations += 1;
      t.ok(source.includes(words), `"${words}" is in the source`);
    }
  }
  t.ok(codes > 10 && quotations > 20, 'the page has codes and quotations');
  for (const [name] of page.matchAll(/\bgateway_[a-z_]+/g)) t.ok(source.includes(`'${name}'`), name);
  for (const [, key = ''] of page.matchAll(/`(key store|access log): /g)) t.match(source, `\`${key}: \${`, key);
  t.end();
});

/**
 * The strings of four words or more in a source file, except the message of a plain Error. A variable part is replaced
 * with an ellipsis.
 */
function textsIn(file: string): string[] {
  const found: string[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isNewExpression(node) && node.expression.getText() === 'Error') return;
    if (ts.isStringLiteralLike(node)) found.push(node.text);
    if (ts.isTemplateExpression(node))
      found.push([node.head.text, ...node.templateSpans.map(({ literal }) => literal.text)].join('\u2026'));
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(file, readFileSync(file, 'utf8'), ts.ScriptTarget.Latest, true));
  return found.filter((text) => text.split(' ').length > 3);
}

// The remedy of key_store_unavailable tells operators to look up the reason of the log line in docs/failure-modes.md.
t.test('the failure modes have each reason of key_store_unavailable', (t) => {
  const page = readFileSync('docs/failure-modes.md', 'utf8');
  const files = ['src/gateway', 'src/adapters/redis'].flatMap((folder) =>
    readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => `${entry.parentPath}/${entry.name}`),
  );
  const throwing = /new (?:KeyStoreUnavailable|MalformedRecord)\(|extends KeyStoreUnavailable/;
  const reasons = files
    .filter((file) => throwing.test(readFileSync(file, 'utf8')) || file.endsWith('/standing.ts'))
    .flatMap(textsIn);
  t.ok(reasons.length > 30, `${reasons.length} reasons were checked`);
  const isOnPage = (reason: string): boolean => reason.split('\u2026').every((part) => page.includes(part.trim()));
  t.same(
    reasons.filter((reason) => !isOnPage(reason)),
    [],
  );
  t.end();
});

/** The dotted names of all fields in a line. */
function fieldsOf(value: unknown, name = ''): string[] {
  if (value === undefined) return [];
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return [name];
  return Object.entries(value).flatMap(([key, part]) => fieldsOf(part, name === '' ? key : `${name}.${key}`));
}

t.test('the audit log document names exactly the fields of the lines', async (t) => {
  const lines = await everyKindOfLine(t);
  const written = new Set(
    lines.flatMap((line) => fieldsOf(line)).map((name) => name.replace(/(?<=predecessor|codes)\..*/, '')),
  );
  const rows = tableOf(readFileSync('docs/audit-log.md', 'utf8'), 'field', 'what it is');
  const documented = new Set(rows.flatMap(([names = '']) => names.replaceAll('`', '').split(', ')));
  t.same([...documented].toSorted(), [...written].toSorted());
});

t.test('the monitoring document, the dashboard and the alert rules name existing metrics', async (t) => {
  const gateway = await startTestGateway(t, { config: { usage: { merchantMetrics: 1 } } });
  const pair = await makeCertificate();
  const folder = t.testdir({ 'tls.crt': pair.cert, 'tls.key': pair.key });
  const files = { certFile: `${folder}/tls.crt`, keyFile: `${folder}/tls.key`, clientCaFile: null };
  const tls = await ServerTls.open(files, 'registry.listen', { now: () => Date.now() });
  const registry = await registryFixture(t, 'sqlite::memory:', { access: { tls, hosts: [], behindProxy: null } });
  const services = await servicesFixture(t);
  const texts = [
    await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text(),
    (await registry.app.inject('/metrics')).body,
    (await services.app.inject('/metrics')).body,
  ];
  const metrics = [...texts.join('\n').matchAll(/^# TYPE (\w+) /gm)].map(([, name = '']) => name);
  const documented = ['metric', 'metric of the registry or the services'].map((column) =>
    tableOf(readFileSync('docs/monitoring.md', 'utf8'), column, 'labels', 'what it is')
      .map(([name = '']) => name.replaceAll('`', ''))
      .toSorted(),
  );
  const own = [/^gateway_/, /^(?:registry|services)_/].map((part) =>
    metrics.filter((name) => part.test(name)).toSorted(),
  );
  t.same(documented, own, 'each metric has its row');
  for (const file of ['helm/files/dashboard.json', 'helm/files/alerts.yaml']) {
    const used = readFileSync(file, 'utf8').match(/\b(?:gateway|nodejs|registry|services)_\w+/g) ?? [];
    const unknown = used.filter((name) => !metrics.includes(name.replace(/_(?:bucket|count|sum)$/, '')));
    t.ok(used.length > 10, file);
    t.same(unknown, [], file);
  }
  t.ok(JSON.parse(readFileSync('helm/files/dashboard.json', 'utf8')));
});
