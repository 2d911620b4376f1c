import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { parse } from 'yaml';
import { run } from '../src/cli/run.js';
import { loadConfig } from '../src/config/load.js';
import { printedBlocks } from './printed-commands.js';

const documents = [
  'README.md',
  'helm/README.md',
  'tor-exit-list/README.md',
  ...['docs', 'docs/benchmarks'].flatMap((folder) =>
    readdirSync(folder)
      .filter((name) => name.endsWith('.md'))
      .map((name) => `${folder}/${name}`),
  ),
];

/** The command lines of a document: the text after the executable's name, up to the next shell command. */
function commandsIn(text: string): string[] {
  const spelling =
    /(?:^|[\s`(])(?:node \S*dist\/cli\/main\.js|(?:npx )?merchant-gateway(?= [a-z-])|npm start --)((?: [^\s`|;&>#]+)+)/g;
  const code = [
    ...withoutFunctions(text)
      .replaceAll('\\\n', ' ')
      .matchAll(/```sh\n([^]*?)```|`([^`\n]+)`/g),
  ].map(([, block, inline]) => block ?? inline ?? '');
  return code
    .flatMap((part) => part.split('\n').flatMap((line) => [...line.replaceAll(/ +/g, ' ').matchAll(spelling)]))
    .map(([whole, rest = '']) => (whole.includes('npm start') ? `dev${rest}` : rest.trim()));
}

/**
 * Some code blocks define a shell function that calls the executable. Returns the document, in which each call of such
 * a function is replaced by a call of the executable.
 */
function withoutFunctions(text: string): string {
  const definition = /\b(\w+)\(\) \{ [^}]*main\.js "\$@"[^}]*\}/g;
  return text.replaceAll(/```sh\n[^]*?```/g, (block) => {
    const names = [...block.matchAll(definition)].map(([, name = '']) => name);
    return names.reduce(
      (rest, name) => rest.replaceAll(new RegExp(`(^|[(& ])${name} (?=[a-z]+ )`, 'gm'), '$1node dist/cli/main.js '),
      block.replaceAll(definition, ''),
    );
  });
}

async function helpOf(words: readonly string[]): Promise<string | null> {
  let help = '';
  const status = await run([...words, '--help'], { out: (text) => (help += text), err: () => undefined });
  return status === 0 && help.startsWith(`Usage: ${['merchant-gateway', ...words].join(' ')}`) ? help : null;
}

/** What is wrong with a command line, according to the help of its command; null if nothing is. */
async function problemOf(line: string): Promise<string | null> {
  const words = line.split(' ');
  const [first = '', second = ''] = words;
  const help = (await helpOf([first, second].filter((word) => /^[a-z]/.test(word)))) ?? (await helpOf([first]));
  if (first.startsWith('-')) return (await helpOf([]))?.includes(first) === true ? null : `no option ${first}`;
  if (help === null) return 'no such command';
  if (help.includes('\nCommands:') && /^[a-z]/.test(second)) return `no command ${second}`;
  const options = new Set([...help.matchAll(/(?<= )--[a-z-]+/g)].map(([option]) => option));
  const unknown = words.filter((word) => word.startsWith('--')).find((word) => !options.has(word.split('=')[0] ?? ''));
  return unknown === undefined ? null : `no option ${unknown}`;
}

t.test('every command in the documents is in the command table, with its options', async (t) => {
  let found = 0;
  for (const document of documents) {
    for (const line of commandsIn(readFileSync(document, 'utf8'))) {
      found += 1;
      t.equal(await problemOf(line), null, `${document}: ${line}`);
    }
  }
  t.ok(found > 30, `${found} commands were checked`);
  t.equal(await problemOf('merchants destroy m_1'), 'no command destroy', 'an unknown command is detected');
  t.equal(await problemOf('merchants create --nam x'), 'no option --nam');
});

t.test('a command that kubectl runs in a pod begins with an executable of its image', (t) => {
  const files = [...documents, 'helm/README.in.md', 'helm/templates/NOTES.txt'];
  const started = files.flatMap((file) => {
    const text = readFileSync(file, 'utf8').replaceAll('\\\n', ' ');
    return [...text.matchAll(/\bkubectl\b.* exec\b.*? -- +(\S+)/g)].map(([, name = '']) => name);
  });
  t.ok(started.length > 6, `${started.length} commands were checked`);
  const unknown = started.filter((name) => !['node', 'redis-cli', 'psql'].includes(name));
  t.same(unknown, [], 'merchant-gateway is not among them');
  t.end();
});

// Every user of the machine can read the arguments of a command, and the shell keeps them in its history.
t.test('no printed command has a secret in its arguments', (t) => {
  for (const file of [...documents, 'helm/README.in.md', 'helm/templates/NOTES.txt'])
    t.notMatch(readFileSync(file, 'utf8'), '--from-literal', file);
  t.end();
});

// kubectl must not own fields of Helm's objects: the next upgrade by Helm 4 would end with a conflict.
t.test('objects of a release are applied as Helm applies them', (t) => {
  const commands = documents.flatMap((document) => {
    const text = readFileSync(document, 'utf8').replaceAll('\\\n', ' ');
    return [...text.matchAll(/helm .*get manifest.*\|\s+(kubectl .*)/g)].map(([, command = '']) => command);
  });
  t.ok(commands.length > 0);
  for (const command of commands) t.match(command, ' apply --server-side --force-conflicts --field-manager=helm ');
  t.end();
});

t.test('the documents name existing package scripts', (t) => {
  const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as { scripts: Record<string, string> };
  for (const document of documents) {
    for (const [, name = ''] of readFileSync(document, 'utf8').matchAll(/npm run (?:--silent )?([a-z:]+)/g)) {
      t.ok(name in scripts, `${document}: npm run ${name}`);
    }
  }
  t.end();
});

t.test('charts are installed only with values that the next upgrade uses too', (t) => {
  const commands = documents.flatMap((document) => readFileSync(document, 'utf8').match(/^helm .*$/gm) ?? []);
  const given = commands.filter((line) => / (?:install|upgrade) /.test(line));
  t.ok(given.length > 2, `${given.length} commands were checked`);
  for (const line of given) {
    t.match(line, ' --values my-values.yaml');
    t.notMatch(line, / --set/, line);
  }
  t.end();
});

t.test('folders that the documents write to exist when the blocks are pasted in order into a clean folder', (t) => {
  for (const document of ['README.md', 'docs/walk-through.md', 'docs/operations.md', 'helm/README.md']) {
    const made = new Set(['.']);
    const missing: string[] = [];
    // Readers of the other pages have followed the README, which creates `var`.
    if (document !== 'README.md') made.add('var');
    for (const [, block = ''] of readFileSync(document, 'utf8').matchAll(/```sh\n([^]*?)```/g)) {
      for (const line of block.replaceAll('\\\n', ' ').split('\n')) {
        for (const [, folder = ''] of line.matchAll(/mkdir -p (\S+)/g)) made.add(folder);
        const written = [...line.matchAll(/(?:>|-keyout|-out) *([^\s$"&]+)|^cp .* (\S+)$/g)];
        for (const [, file, target] of written) {
          const folder = path.join(target ?? path.dirname(file ?? ''), '.').replace(/\/$/, '');
          if (!made.has(folder)) missing.push(`${document}: ${line.trim()}`);
        }
      }
    }
    t.same(missing, [], document);
  }
  t.end();
});

t.test('before the gateways start after a disaster, the runbook names only commands that need none', (t) => {
  const page = readFileSync('docs/operations.md', 'utf8');
  const [, named = ''] = /Before they start, run only([^.]*) of step 6/.exec(page) ?? [];
  const step = printedBlocks('docs/operations.md').find(({ heading }) => heading === '6. Look')?.commands ?? '';
  t.match(step, '"$READY"', 'the step has commands that need a gateway');
  t.same(
    Array.from(named.matchAll(/`([^`]+)`/g), ([, command]) => command),
    step.match(/(?<=main\.js )[a-z]+ [a-z]+/g),
  );
  t.end();
});

t.test('where a database does not exist yet, the runbook names the error of the check that it recommends', (t) => {
  const page = readFileSync('docs/operations.md', 'utf8');
  const [, introduction = ''] = /\n## The first payout\n([^]*?)\n### /.exec(page) ?? [];
  const error = 'There is no database';
  t.match(introduction, 'config check --for registry --connect');
  t.match(introduction, `Ignore \`${error}\``);
  t.match(readFileSync('src/database/open-database.ts', 'utf8'), `\`${error} `);
  t.end();
});

t.test('each alert links to its section in the operations document, and every section has an alert', (t) => {
  const { groups } = parse(readFileSync('helm/files/alerts.yaml', 'utf8')) as {
    groups: { rules: { alert: string; annotations: { runbook_url: string } }[] }[];
  };
  const rows = [
    ...readFileSync('docs/operations.md', 'utf8').matchAll(/^### ((?:Gateway|Registry|Services)\w+)$/gm),
  ].map(([, name]) => name);
  const rules = groups.flatMap((group) => group.rules);
  t.same(rows.toSorted(), rules.map(({ alert }) => alert).toSorted());
  for (const { alert, annotations } of rules) {
    const [file = '', anchor] = annotations.runbook_url.split('#');
    const headings = [...readFileSync(file, 'utf8').matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) => heading);
    t.ok(headings.map((heading) => heading.toLowerCase().replaceAll(/[^\w]+/g, '-')).includes(anchor ?? ''), alert);
    t.equal(anchor, alert.toLowerCase());
  }
  t.end();
});

t.test('no alert announces 401 for a record that is missing in Redis, because the gateway asks the registry', (t) => {
  const { groups } = parse(readFileSync('helm/files/alerts.yaml', 'utf8')) as {
    groups: { rules: { alert: string; annotations: { summary: string } }[] }[];
  };
  const summaries = new Map(groups.flatMap(({ rules }) => rules.map((one) => [one.alert, one.annotations.summary])));
  const sections = readFileSync('docs/operations.md', 'utf8').split(/^### /m);
  for (const alert of ['RegistryRepairPaused', 'RegistryRecordsMissing', 'RegistryRedisEvicts']) {
    const section = sections.find((one) => one.startsWith(`${alert}\n`));
    t.notMatch(`${summaries.get(alert) ?? '401'}\n${section ?? '401'}`, '401', alert);
  }
  t.end();
});

t.test('alerts count events before the first scrape of a series, and compare a backlog with its earlier value', (t) => {
  const { groups } = parse(readFileSync('helm/files/alerts.yaml', 'utf8')) as {
    groups: { rules: { alert: string; expr: string; annotations: { summary: string } }[] }[];
  };
  const rules = groups.flatMap((group) => group.rules);
  const rare = rules.filter(({ expr }) => /increase\(\w+_requests_total/.test(expr));
  const waiting = rules.filter(({ annotations }) => annotations.summary.includes('for five minutes'));
  t.ok(rare.length > 1 && waiting.length > 1);
  for (const { alert, expr } of rare) {
    for (const [, series = ''] of expr.matchAll(/increase\((\w+_requests_total\{[^}]*\})/g)) {
      t.ok(expr.replaceAll(/\s+/g, ' ').includes(`${series} unless ${series} offset 10m`), alert);
    }
  }
  for (const { alert, expr } of waiting) t.match(expr, / < max by \(namespace, job\) \(\w+\{\} offset 5m\)$/, alert);
  t.end();
});

t.test('each failure metric with the values 0 and 1 has an alert', (t) => {
  const metrics = [...readFileSync('docs/monitoring.md', 'utf8').matchAll(/^\| `(\w+)` \|[^|]*\| 1 while /gm)];
  t.ok(metrics.length > 8);
  const alerts = readFileSync('helm/files/alerts.yaml', 'utf8');
  for (const [, metric = ''] of metrics) t.ok(new RegExp(`${metric}\\{\\} == [01]\\b`).test(alerts), metric);
  t.end();
});

t.test('alerts and dashboard query existing codes', async (t) => {
  const { gatewayErrors } = await import('../src/policy/gateway-errors.js');
  const { denials } = await import('../src/policy/decision-table.js');
  const asked = readFileSync('helm/files/alerts.yaml', 'utf8') + readFileSync('helm/files/dashboard.json', 'utf8');
  const codes = [...asked.matchAll(/code!?=~?\\?"([a-z_|]+)\\?"/g)].flatMap(([, list = '']) => list.split('|'));
  const known = new Set(['accepted', ...Object.keys(gatewayErrors), ...denials.map(({ code }) => code)]);
  t.ok(codes.length > 8);
  t.same(
    codes.filter((code) => !known.has(code)),
    [],
  );
});

t.test('the compose file mounts the files that its configuration names', (t) => {
  const folder = 'docs/compose';
  const compose = parse(readFileSync(path.join(folder, 'compose.yaml'), 'utf8'), { merge: true }) as {
    services: Record<
      string,
      {
        command?: string[];
        secrets?: string[];
        volumes?: string[];
        read_only?: boolean;
        healthcheck?: { disable?: boolean };
        environment?: Record<string, string>;
        image: string;
      }
    >;
    secrets: Record<string, unknown>;
  };
  const config = readFileSync(path.join(folder, 'gateway.yaml'), 'utf8');
  const named = [...config.matchAll(/\/run\/secrets\/(\w+)/g)].map(([, name = '']) => name);
  t.same(
    new Set(named),
    new Set(Object.keys(compose.secrets)),
    'the configuration names exactly the secrets of the compose file',
  );
  const { registry, services } = loadConfig({ text: config });
  const healthOf: Record<string, string | undefined> = {
    registry: `https://localhost:${registry.listen.port}/livez`,
    services: `http://127.0.0.1:${services.listen.port}/livez`,
  };
  const parts = Object.entries(compose.services).filter(([, { image }]) => image === 'merchant-gateway');
  t.same(
    parts.map(([name]) => name),
    ['registry', 'gateway', 'services'],
  );
  for (const [name, part] of parts) {
    t.equal(part.command?.[0], name);
    t.equal(part.read_only, true);
    t.not(part.healthcheck?.disable, true, `\`docker compose up --wait\` fails for ${name}`);
    t.equal(part.environment?.HEALTH_URL, healthOf[name], 'the health check queries its own part, not the gateway');
    for (const volume of part.volumes ?? []) {
      const [source = ''] = volume.split(':');
      if (source.startsWith('.')) t.doesNotThrow(() => readFileSync(path.join(folder, source)), source);
    }
  }
  t.end();
});

t.test('the configuration of the compose file is valid', async (t) => {
  let err = '';
  const io = { out: () => undefined, err: (text: string) => (err += text) };
  t.equal(await run(['config', 'check', '--config', 'docs/compose/gateway.yaml'], io), 0, err);
  t.match(err, /^Note:\n {2}keyStore\.cache\.maxEntries: .*\n$/, 'the gateway starts with it');
});
