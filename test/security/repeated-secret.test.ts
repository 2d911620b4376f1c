import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import t, { type Test } from 'tap';
import { run } from '../../src/cli/run.js';
import { generateApiKey } from '../../src/gateway/api-key.js';
import { createRestApp } from '../../src/rest/rest-app.js';
import Type from '../../src/typebox/typebox.js';
import { registryFixture, token } from '../registry/registry-fixture.js';

// `keys create --environment svc_live_…` said that svc_live_… is no environment, and a field of that name was answered with it:
// what is said about a mistake is kept in terminals, in the logs of jobs and in tickets.
const keys = [generateApiKey('live'), generateApiKey('test')];
const given = keys.flatMap((key) => [key, key.toUpperCase(), `x${key}`, key.replace('svc', '%73vc')]);

function assertKeyless(t: Test, text: string, what: string): void {
  for (const key of keys) t.notMatch(text.toLowerCase(), key.slice(9, 15).toLowerCase(), what);
}

t.test('the APIs repeat no key that is given as the name of a field or of a query parameter', async (t) => {
  const { call } = await registryFixture(t, 'sqlite::memory:');
  for (const name of given) {
    const answers = [
      await call('POST', '/merchants', { body: { name: 'Ada', [name]: 1 } }),
      await call('POST', '/merchants', { body: `{"name":"Ada","${name}":1,"${name}":2}` }),
      await call('GET', `/merchants?${encodeURIComponent(name)}=1`),
    ];
    for (const answer of answers) {
      t.equal(answer.status, 422, name);
      assertKeyless(t, JSON.stringify(answer.body), name);
    }
    t.match(answers[0]?.body.message, /svc_(live|test)_… is not a known field$/i, 'what is wrong is still told');
  }
});

t.test('nor do the services, which are made of the same parts', async (t) => {
  const app = createRestApp({ admit: () => undefined });
  t.teardown(() => app.close());
  app.post('/payouts', { schema: { body: Type.Object({}), querystring: Type.Object({}) } }, () => null);
  for (const name of given) {
    for (const [url, payload] of [
      ['/payouts', { [name]: 1 }],
      [`/payouts?${encodeURIComponent(name)}=1`, {}],
    ] as const) {
      const answer = await app.inject({ method: 'POST', url, payload });
      t.equal(answer.statusCode, 422, name);
      assertKeyless(t, answer.body, name);
    }
  }
});

async function said(...args: string[]): Promise<{ status: number; text: string }> {
  let text = '';
  const add = (more: string): void => void (text += more);
  const status = await run(args, { out: add, err: add });
  return { status, text };
}

const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-secret-'));
t.teardown(() => rm(directory, { recursive: true }));
const tokenFile = path.join(directory, 'token');
await writeFile(tokenFile, token);

t.test('the command line repeats no key that is given in the wrong place', async (t) => {
  for (const key of given) {
    const create = ['keys', 'create', '--merchant', 'm_1'];
    for (const args of [
      [...create, '--environment', key],
      [...create, '--environment', 'live', '--expires-in', key],
      ['keys', 'reset', 'key_1', '--grace', key],
      ['keys', 'list', `--${key}`],
      ['keys', 'list', '--merchant', 'm_1', key],
      ['keys', key],
      [key],
      ['keys', 'import', key, '--registry', 'http://127.0.0.1:1', '--token-file', tokenFile],
      ['keys', 'list', '--merchant', 'm_1', '--token-file', key],
      ['keys', 'list', '--merchant', 'm_1', '--config', key],
      ['database', 'migrate', key],
      ['audit', 'verify', key],
    ]) {
      const { status, text } = await said(...args);
      t.not(status, 0, args.join(' '));
      assertKeyless(t, text, args.join(' '));
    }
  }
});

t.test('nor a token that is given where its file is to be named', async (t) => {
  const base64 = 'ab/cdEF0ghIJklMNopQRstUVwxYZ0123456789+/ABC=';
  for (const secret of ['2197c4'.repeat(10), token, base64]) {
    const { status, text } = await said('merchants', 'list', '--token-file', secret);
    t.equal(status, 1);
    t.notMatch(text, secret.slice(0, 12));
    t.match(text, /^The token file cannot be read: .* put a secret into a file, and give the name of that/);
  }
  for (const file of [
    path.join(directory, 'a-token-of-administrators-0123456789'),
    './a-token-0123456789-0123456789-01',
  ]) {
    const { text } = await said('merchants', 'list', '--token-file', file);
    t.equal(text, `The token file ${file} cannot be read: there is no such file.\n`, 'a path is told');
  }
});
