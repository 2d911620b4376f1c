import { writeFileSync } from 'node:fs';
import t, { type Test } from 'tap';
import { run } from '../../src/cli/run.js';
import { registryFixture, token } from '../registry/registry-fixture.js';

interface Result {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

async function cli(...args: string[]): Promise<Result> {
  let [stdout, stderr] = ['', ''];
  const status = await run(args, { out: (text) => (stdout += text), err: (text) => (stderr += text) });
  return { status, stdout, stderr };
}

/** Starts an empty registry. `admin` of the result runs an administration command against it. */
async function emptyRegistry(t: Test) {
  const { app, createMerchant } = await registryFixture(t, 'sqlite::memory:');
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  const tokenFile = `${t.testdir({ token })}/token`;
  return { createMerchant, admin: (...args: string[]) => cli(...args, '--registry', url, '--token-file', tokenFile) };
}

t.test('an empty result succeeds with a message, and with --json prints an empty list', async (t) => {
  const { admin, createMerchant } = await emptyRegistry(t);
  const empty = async (args: string[], sentence: string): Promise<void> => {
    t.same(await admin(...args), { status: 0, stdout: `${sentence}\n`, stderr: '' }, args.join(' '));
    t.same(await admin(...args, '--json'), { status: 0, stdout: '[]\n', stderr: '' }, `${args.join(' ')} --json`);
  };
  await empty(['merchants', 'list'], 'No merchants.');
  await empty(['merchants', 'list', '--search', 'x', '--status', 'CLOSED'], 'No merchants.');
  await empty(['events', 'list', '--merchant', 'm_nobody', '--action', 'key.revoked'], 'No events.');
  await empty(['gateways', 'list'], 'No gateways.');
  await empty(['restores', 'list'], 'No changes are known to be missing from the database.');
  await empty(['restores', 'held'], 'No records.');
  const nothing = { status: 0, stdout: '', stderr: 'No merchants or keys to export.\n' };
  t.same(await admin('keys', 'export'), nothing);
  t.same(await admin('keys', 'export', '--merchant', 'm_nobody'), nothing);
  const { id } = await createMerchant();
  await empty(['keys', 'list', '--merchant', id], 'No keys.');
  t.match(await admin('keys', 'export'), { status: 0, stdout: /"type":"merchant"/, stderr: /^$/ });
});

t.test('a filter that the registry rejects is a usage error that names the option', async (t) => {
  const { admin } = await emptyRegistry(t);
  const cases: [args: string[], sentences: RegExp][] = [
    [['merchants', 'list', '--page', '0'], /^error: --page must be a whole number from 1 to 999999999\n\(see --help/],
    [['merchants', 'list', '--per-page', '101'], /^error: --per-page must be .*1 to 100/],
    [['merchants', 'list', '--status', 'closed'], /^error: --status must be a word in upper case/],
    [['merchants', 'list', '--search', 'x'.repeat(101)], /^error: --search must be a text .*100 characters/],
    [['keys', 'list', '--merchant', 'm_1', '--page', 'x'], /^error: --page must be/],
    [['keys', 'list', '--merchant', 'm 1'], /^error: the id of a merchant must consist of 1 to 64/],
    [['events', 'list', '--since', 'yesterday'], /^error: --since must be a date and time with its zone/],
    [['events', 'list', '--action', 'key.stolen'], /^error: --action must be one of merchant\.created, /],
    [['events', 'list', '--since', 'x', '--page', 'y'], /^error: --page must be .*\n--since must be .*\n/],
    [['events', 'list', '--key-id', 'key 1'], /^error: the id of a key must consist of 1 to 64/],
    [['events', 'list', '--key-id', 'key_1', '--key', 'key_2'], /cannot be used with/],
    [['restores', 'held', '--page', '-1'], /^error: --page must be/],
  ];
  for (const [args, sentences] of cases) {
    const { status, stdout, stderr } = await admin(...args);
    t.same({ status, stdout }, { status: 2, stdout: '' }, args.join(' '));
    t.match(stderr, sentences, args.join(' '));
  }
  const { status } = await admin('merchants', 'create', '--name', 'Ada', '--status', 'closed');
  t.equal(status, 1, 'a rejected change is a failure, not a usage error');
});

t.test('a log search without matches says so, and rejects filters that cannot match', async (t) => {
  const log = `${t.testdir()}/access.log`;
  writeFileSync(log, '');
  t.same(await cli('audit', 'search', log), { status: 0, stdout: '', stderr: 'No line matches.\n' });
  t.same(await cli('audit', 'search', log, '--json'), { status: 0, stdout: '', stderr: 'No line matches.\n' });
  t.same(await cli('audit', 'summary', log), {
    status: 0,
    stdout: 'No requests to count.\n',
    stderr: '',
  });
  const { status, stdout } = await cli('audit', 'summary', log, '--json');
  t.equal(status, 0);
  t.match(JSON.parse(stdout), { requests: 0, codes: { length: 0 } });

  const cases: [args: string[], sentence: RegExp][] = [
    [
      ['--code', 'key_unknow'],
      /Did you mean key_unknown\? Expected "accepted" or an error code that "merchant-gateway codes" lists/,
    ],
    [['--code', 'refused'], /is invalid\. Expected "accepted" or an error code/],
    [['--fingerprint', 'abc'], /Expected the 32 hexadecimal digits that "merchant-gateway keys fingerprint" prints/],
    [['--path', 'v1/payouts'], /Expected a path such as \/v1\/payouts, without a query/],
    [['--path', '/v1/payouts?page=1'], /without a query/],
    [['--key-id', `svc_live_${'k'.repeat(49)}`], /this is an API key or a token, not an id/],
    [['--merchant', `svc_test_${'k'.repeat(49)}`], /this is an API key or a token, not an id/],
    [['--key', `svc_live_${'k'.repeat(49)}`], /this is an API key or a token, not an id/],
    [['--since', '2026-01-02', '--until', '2026-01-02'], /--until must be later than --since/],
    [['--address', '999.1.1.1'], /Expected an IP address or CIDR/],
    [['--since', 'yesterday'], /Expected a time such as/],
  ];
  for (const command of ['search', 'summary']) {
    for (const [args, sentence] of cases) {
      const { status, stdout, stderr } = await cli('audit', command, log, ...args);
      t.same({ status, stdout }, { status: 2, stdout: '' }, `${command} ${args.join(' ')}`);
      t.match(stderr, sentence, `${command} ${args.join(' ')}`);
      t.notMatch(stderr, 'kkkkkkkk', 'no key is repeated');
    }
  }
  for (const code of ['accepted', 'key_required', 'upstream_failed']) {
    t.equal((await cli('audit', 'search', log, '--code', code)).status, 0, code);
  }
});
