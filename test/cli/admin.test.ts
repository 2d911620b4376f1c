import { registryAuthor } from '../../src/registry/events/author.js';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { IncomingMessage, OutgoingHttpHeaders } from 'node:http';
import https from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import t, { type Test } from 'tap';
import { actorNamed } from '../../src/cli/admin/actor.js';
import { AdminClient } from '../../src/cli/admin/admin-client.js';
import { registryPeer } from '../../src/cli/admin/peer.js';
import { createSelfSigned } from '../../src/cli/dev/self-signed.js';
import { run as runCommand } from '../../src/cli/run.js';
import { recordEvents, type NewEvent } from '../../src/registry/events/repository.js';
import Type from '../../src/typebox/typebox.js';
import { freePort } from '../adapters/redis-server.js';
import { gateway } from '../registry/memory-records-store.js';
import { registryFixture, token } from '../registry/registry-fixture.js';
import { killAtEnd, limitedCommand, productCommand } from '../product-command.js';
import { forward, startServer } from '../start-server.js';

const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-admin-'));
t.teardown(() => rm(directory, { recursive: true, force: true }));
const tokenFile = path.join(directory, 'token');
await writeFile(tokenFile, `${token}\n`);

const keyForm = /svc_(?:live|test)_[0-9A-Za-z]{49}/g;

interface Result {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

function setEnvironment(variables: { token?: string; registry?: string } = {}): void {
  delete process.env.MERCHANT_GATEWAY_TOKEN;
  delete process.env.MERCHANT_GATEWAY_REGISTRY;
  if (variables.token !== undefined) process.env.MERCHANT_GATEWAY_TOKEN = variables.token;
  if (variables.registry !== undefined) process.env.MERCHANT_GATEWAY_REGISTRY = variables.registry;
}
setEnvironment();

/** Runs a command; checks that its output never contains the token and that stderr contains no key. */
async function run(t: Test, ...args: string[]): Promise<Result> {
  let [stdout, stderr] = ['', ''];
  const status = await runCommand(args, { out: (text) => (stdout += text), err: (text) => (stderr += text) });
  t.notOk((stdout + stderr).includes(token), 'the output does not contain the token');
  t.notMatch(stderr, new RegExp(keyForm.source), 'stderr contains no key');
  t.notMatch(stderr, /\n {4}at /, 'no stack trace');
  return { status, stdout, stderr };
}

/** Starts a registry whose gateways acknowledge each change. `admin` of the result runs a command against it. */
async function startRegistry(t: Test) {
  const fixture = await registryFixture(t, 'sqlite::memory:');
  const url = await fixture.app.listen({ host: '127.0.0.1', port: 0 });
  fixture.store.live = ['a', 'b', 'c'].map((name) => gateway(name));
  const admin = (...args: string[]): Promise<Result> => run(t, ...args, '--registry', url, '--token-file', tokenFile);
  return { ...fixture, url, admin };
}

/** A server that sends the same response to every request. */
async function startResponding(t: Test, status: number, body: string, headers: OutgoingHttpHeaders = {}) {
  const requests: IncomingMessage[] = [];
  const url = await startServer(t, (request, response) => {
    requests.push(request);
    response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(body);
  });
  return { url, requests };
}

function keysIn(text: string): string[] {
  return text.match(keyForm) ?? [];
}

t.test('merchants are created, changed, listed and shown', async (t) => {
  const { admin, call } = await startRegistry(t);
  const created = await admin(
    ...['merchants', 'create', '--name', 'Ada Stores', '--go-live', '--status', 'ACTIVE'],
    ...['--allow-ip', '203.0.113.0/24', '--allow-ip', '10.0.0.0/8', '--confirm', 'private_range'],
    ...['--allow-origin', 'shop.example', '--confirm', 'open_range'],
  );
  t.equal(created.stderr, '');
  t.equal(created.status, 0);
  t.match(created.stdout, /^id {12}m_\w+\nname {10}Ada Stores\nstatus {8}ACTIVE\nlive {10}yes\n/);
  t.match(created.stdout, 'IP addresses  203.0.113.0/24, 10.0.0.0/8\norigins       shop.example\n');
  t.match(created.stdout, /\nIn force on 3 of 3 gateways after \d+ ms\.\n$/);
  const id = /m_\w+/.exec(created.stdout)?.[0] ?? '';

  const merchant = async () => (await call('GET', `/merchants/${id}`)).body.data;
  t.match((await admin('merchants', 'set', id, '--name', 'Ada', '--status', 'SUSPENDED', '--no-go-live')).status, 0);
  t.match(await merchant(), { name: 'Ada', status: 'SUSPENDED', goLive: false, ipAllowlist: { length: 2 } });
  t.equal((await admin('merchants', 'set', id, '--any-ip', '--any-origin')).status, 0);
  t.match(await merchant(), { name: 'Ada', goLive: false, ipAllowlist: null, originAllowlist: null });
  t.equal((await admin('merchants', 'set', id, '--go-live', '--allow-ip', '9.9.9.9')).status, 0);
  t.match(await merchant(), { status: 'SUSPENDED', goLive: true, ipAllowlist: ['9.9.9.9'] });
  const closing = ['merchants', 'set', id, '--deny-every-ip', '--deny-every-origin'];
  const unconfirmed = await admin(...closing);
  t.equal(unconfirmed.status, 1);
  t.match(unconfirmed.stderr, /ipAllowlist: an empty list admits no client; add --confirm empty_list if you want this/);
  t.match(await merchant(), { ipAllowlist: ['9.9.9.9'], originAllowlist: null }, 'the merchant is unchanged');
  const closed = await admin(...closing, '--confirm', 'empty_list');
  t.equal(closed.status, 0);
  t.match(
    closed.stdout,
    'IP addresses  empty: every request is rejected\norigins       empty: every request is rejected\n',
  );
  t.match(await merchant(), { ipAllowlist: { length: 0 }, originAllowlist: { length: 0 } });
  t.equal((await admin('merchants', 'set', id, '--any-ip', '--any-origin')).status, 0);
  t.match(await merchant(), { ipAllowlist: null, originAllowlist: null });
  t.equal((await admin('merchants', 'set', id, '--allow-ip', '9.9.9.9')).status, 0);

  for (const name of ['Bob', 'Bobby', 'Cy']) t.equal((await admin('merchants', 'create', '--name', name)).status, 0);
  const list = await admin('merchants', 'list', '--search', 'BOB');
  const [heading = '', first = '', second = '', ...rest] = list.stdout.split('\n');
  t.match(heading, /^ID +NAME +STATUS +LIVE +IPS +ORIGINS$/);
  t.match([first, second], [/^m_\w+ +Bobby +ACTIVE +no +any +any$/, /^m_\w+ +Bob +ACTIVE +no +any +any$/]);
  t.equal(first.indexOf('ACTIVE'), heading.indexOf('STATUS'), 'columns are aligned');
  t.equal(second.indexOf('ACTIVE'), heading.indexOf('STATUS'));
  t.same(rest, ['2 merchants.', '']);
  t.match((await admin('merchants', 'list', '--status', 'SUSPENDED')).stdout, /\n1 merchant\.\n$/);
  const page = (await admin('merchants', 'list', '--per-page', '3', '--page', '2')).stdout;
  t.match(page, /\n1 of 4 merchants: page 2 of 2\. To show other pages, use --page and --per-page\.\n$/);
  t.equal((await admin('merchants', 'list', '--search', 'nobody')).stdout, 'No merchants.\n');
  t.match((await admin('merchants', 'show', id)).stdout, /^id {12}m_\w+\nname {10}Ada\n[^]*9\.9\.9\.9\n/);
});

t.test('a key is shown only at its creation; --json prints exactly the data of the response', async (t) => {
  const { admin, call, createMerchant, store } = await startRegistry(t);
  const { id } = await createMerchant();
  store.live.push(gateway('sandbox', { environment: 'test' }));
  const created = await admin(
    ...['keys', 'create', '--merchant', id, '--environment', 'live', '--permission', 'payouts:write'],
    ...['--permission', 'wallets:*', '--expires-in', '90d', '--label', 'till 7'],
  );
  t.equal(created.status, 0);
  t.equal(keysIn(created.stdout).length, 1, 'the key is printed once');
  t.match(created.stdout, /\nStore this key now: it is not shown again\.\nIn force on 3 of 3 gateways/);
  const keyId = /key_\w+/.exec(created.stdout)?.[0] ?? '';

  const list = await admin('keys', 'list', '--merchant', id);
  t.match(list.stdout, /^KEYID +ENVIRONMENT +STATUS +PERMISSIONS +CREATED +EXPIRES +LAST USE +LABEL\nkey_/);
  t.match(
    list.stdout,
    /live +ACTIVE +payouts:write wallets:\* +2026-01-15T\S+ +2026-04-15T12:00:00.000Z +never +till 7\n/,
  );
  t.match(list.stdout, /\n1 key\.\n$/);
  t.same(keysIn(list.stdout), []);

  const reset = await admin('keys', 'reset', keyId, '--grace', '24h');
  t.equal(reset.status, 0);
  t.equal(keysIn(reset.stdout).length, 1);
  t.not(keysIn(reset.stdout)[0], keysIn(created.stdout)[0]);
  t.match(reset.stdout, `The old key ${keyId} expires at 2026-01-16T12:00:00.000Z.`);
  const next = /^key_\w+/m.exec(reset.stdout)?.[0] ?? '';
  const ended = await admin('keys', 'reset', next);
  t.match(ended.stdout, `The old key ${next} is revoked.`);
  const revoked = await admin('keys', 'revoke', keyId);
  t.equal(revoked.status, 0);
  t.match(
    revoked.stdout,
    /^The key key_\w+ of the merchant m_\w+ is revoked\.\nIn force on 3 of 3 gateways after \d+ ms\.\n$/,
  );

  const json = async (...args: string[]): Promise<unknown> => {
    const { status, stdout, stderr } = await admin(...args, '--json');
    t.same([status, stderr], [0, ''], args.join(' '));
    return JSON.parse(stdout);
  };
  const shown = (await json('keys', 'create', '--merchant', id, '--environment', 'test')) as { keyId: string };
  t.match(shown, { key: /^svc_test_\w{49}$/, permissions: ['*'], expiresAt: null, propagation: { confirmed: 1 } });
  t.match(await json('keys', 'reset', shown.keyId), { key: /^svc_test_/, replaces: { keyId: shown.keyId } });
  t.match(await json('keys', 'revoke', keyId), { keyId, status: 'REVOKED', propagation: { gateways: 3 } });
  for (const [args, target] of [
    [['merchants', 'list'], '/merchants'],
    [['merchants', 'show', id], `/merchants/${id}`],
    [['keys', 'list', '--merchant', id], `/merchants/${id}/keys`],
    [['gateways', 'list'], '/gateways'],
    [['restores', 'list'], '/restores'],
    [['events', 'list'], '/events'],
  ] as const) {
    t.same(await json(...args), (await call('GET', target)).body.data, target);
  }
});

t.test('gateways list prints the roster with the revision that each gateway has acknowledged', async (t) => {
  const { admin, createMerchant, database, store } = await startRegistry(t);
  const roster = { host: 'lost.internal', environment: 'test', version: '0.9.0', revision: 1 } as const;
  const row = { ...roster, instance_id: 'lost', first_seen: 0, lifetime_milliseconds: 61_000 };
  await database
    .insertInto('gateways')
    .values([row, { ...row, instance_id: 'a' }])
    .execute();
  store.silence = 5_000;
  await createMerchant();
  const lines = async (): Promise<string[]> => (await admin('gateways', 'list')).stdout.split('\n');
  const [heading, a, b, , lost, ...rest] = await lines();
  t.match(heading, /^INSTANCE +HOST +ENVIRONMENT +VERSION +CONFIRMED +LIFETIME +LAST SEEN +CLOCK SKEW$/);
  t.match(a, /^a +a\.internal +live +1\.0\.0 +1 +\d+ s +2026-01-15T12:00:00\.000Z +unknown$/);
  t.match(
    b,
    /^b +b\.internal +live +1\.0\.0 +1 \(not allowed to cache yet\) +31 s +2026-01-15T12:00:00\.000Z +unknown$/,
  );
  t.match(lost, /^lost +lost\.internal +test +0\.9\.0 +nothing yet +61 s +2026-01-15T11:59:55\.000Z +unknown$/);
  t.same(rest, ['']);
  store.live = [gateway('former', { generation: null })];
  const [, , former, , hint] = await lines();
  t.match(former, /^former +.* +cannot confirm \(earlier release\) +/);
  t.match(hint, /^A gateway of an earlier release cannot confirm changes\./);
  await database.deleteFrom('gateways').execute();
  store.live = [];
  t.equal((await admin('gateways', 'list')).stdout, 'No gateways.\n');
});

t.test('gateways list prints the gateways of a registry of the previous release', async (t) => {
  const former = { instanceId: 'a', host: 'a.internal', environment: 'live', revision: 7, startedAt: '2026-01-15' };
  const { url } = await startResponding(t, 200, JSON.stringify({ success: true, message: '', data: [former] }));
  const { status, stdout } = await run(t, 'gateways', 'list', '--registry', url, '--token-file', tokenFile);
  t.equal(status, 0);
  t.match(stdout.split('\n')[1], /^a +a\.internal +live +unknown +7 +unknown +unknown +unknown$/);
});

t.test('after a restore, missing changes are listed, and held-back records can be lifted', async (t) => {
  const { admin, call, createKey, createMerchant, database } = await startRegistry(t);
  t.equal((await admin('restores', 'list')).stdout, 'No changes are known to be missing from the database.\n');
  t.equal((await admin('restores', 'held')).stdout, 'No records.\n');
  const { id } = await createMerchant({ goLive: true });
  const { keyId } = await createKey(id);
  const [noon, minute] = [Date.parse('2026-01-15T12:00:00Z'), 60_000];
  await database
    .insertInto('restores')
    .values([
      { found_at: noon, newest_at: noon - minute, is_certain: 1 },
      { found_at: noon + minute, newest_at: null, is_certain: 0 },
    ])
    .execute();
  const held = { merchant_id: id, source: 'store', found_at: noon };
  const [wasKey, wasMerchant] = [
    { status: 'ACTIVE', expires_at: null },
    { status: 'ACTIVE', go_live: 1 },
  ];
  await database
    .insertInto('held_back')
    .values([
      { ...held, id: keyId, kind: 'key', was: JSON.stringify(wasKey) },
      { ...held, id, kind: 'merchant', was: JSON.stringify(wasMerchant), source: 'g', found_at: noon + minute },
    ])
    .execute();
  await database.updateTable('api_keys').set({ status: 'REVOKED' }).execute();
  await database.updateTable('merchants').set({ status: 'SUSPENDED', go_live: 0 }).execute();

  const list = (await admin('restores', 'list')).stdout.split('\n');
  t.match(list[0], /^CHANGES UNKNOWN SINCE +UNTIL +BECAUSE$/);
  t.match(
    list[1],
    /^the beginning +2026-01-15T12:01:00\.000Z +changes may be lost: Redis and the gateways have no records to compare the database with$/,
  );
  t.match(list[2], /^2026-01-15T11:59:00\.000Z +2026-01-15T12:00:00\.000Z +a gateway or Redis has changes that/);
  const shown = (await admin('restores', 'held')).stdout.split('\n');
  t.match(shown[0], /^KIND +KEYID +MERCHANT +KNOWN BY +FOUND$/);
  t.match(shown[1], new RegExp(`^merchant {2,}${id} +g +2026-01-15T12:01:00`));
  t.match(shown[2], new RegExp(`^key +${keyId} +${id} +store +2026-01-15T12:00:00`));
  t.same(shown.slice(3), ['2 records.', '']);
  t.match(
    (await admin('restores', 'held', '--per-page', '1', '--page', '2')).stdout,
    /\nkey +[^]*1 of 2 records: page 2/,
  );
  const json = await admin('restores', 'held', '--json');
  t.same(JSON.parse(json.stdout), (await call('GET', '/restores/held')).body.data);
  t.match(JSON.parse(json.stdout), [
    { kind: 'merchant', keyId: null, merchantId: id, id },
    { kind: 'key', keyId, merchantId: id, id: keyId },
  ]);

  const lifted = await admin('restores', 'lift', keyId, '--actor', 'ada');
  t.equal(lifted.status, 0);
  t.equal(
    lifted.stdout.split('\n')[0],
    `The key ${keyId} is no longer kept inactive: it has the state that it had in the restored database.`,
  );
  t.match(lifted.stdout, /\nIn force on 3 of 3 gateways/);
  t.match((await call('GET', `/merchants/${id}/keys`)).body.data, [{ keyId, status: 'ACTIVE' }]);
  t.match(
    (await admin('restores', 'lift', id)).stdout,
    `The merchant ${id} is no longer kept inactive: it has the state that it had in the restored database.\n`,
  );
  t.match((await call('GET', `/merchants/${id}`)).body.data, { status: 'ACTIVE', goLive: true });
  t.equal((await admin('restores', 'held')).stdout, 'No records.\n');
  t.match((await admin('events', 'list', '--action', 'key.lifted')).stdout, / bootstrap \(claims ada\) +key\.lifted /);
  const again = await admin('restores', 'lift', keyId);
  t.equal(again.status, 1);
  t.match(again.stderr, /^The registry rejected the request \(status 404\): Held-back record not found\. /);
});

t.test('events are listed', async (t) => {
  const { admin, createKey, createMerchant } = await startRegistry(t);
  const { id } = await createMerchant();
  const { keyId } = await createKey(id);
  await admin('merchants', 'set', id, '--go-live', '--status', 'SUSPENDED');
  await admin('keys', 'revoke', keyId);
  const events = async (...args: string[]): Promise<string[]> =>
    (await admin('events', 'list', ...args)).stdout.split('\n').map((line) => line.split(/ {2,}/)[2] ?? line);
  const all = ['key.revoked', 'merchant.changed', 'key.created', 'merchant.created'];
  t.same(await events('--merchant', id), ['ACTION', ...all, '4 events.', '']);
  t.same(await events('--key-id', keyId), ['ACTION', 'key.revoked', 'key.created', '2 events.', '']);
  t.same(await events('--key', keyId), ['ACTION', 'key.revoked', 'key.created', '2 events.', '']);
  t.same(await events('--action', 'merchant.changed'), ['ACTION', 'merchant.changed', '1 event.', '']);
  t.same(await events('--since', '2030-01-01T00:00:00Z'), ['No events.', '']);
  t.same(await events('--since', '2020-01-01T00:00:00Z'), ['ACTION', ...all, '4 events.', '']);
  t.match((await admin('events', 'list')).stdout, / merchant\.changed +m_\w+ +\S+ +status goLive\n/);
});

t.test('the event of a forged record contains the record name and the cause', async (t) => {
  const { admin, database } = await startRegistry(t);
  const forged = (record: string, cause: string): NewEvent => ({
    ...{ action: 'record.forged', merchantId: 'm_1', keyId: null, before: null, after: { record, cause } },
  });
  const events = [forged('key:0123abcd', 'older'), forged('key:\u001b[2J', 'unknown')];
  await recordEvents(database, events, { at: 0, author: registryAuthor, revision: 1 });
  const lines = (await admin('events', 'list', '--action', 'record.forged')).stdout.split('\n');
  t.match(lines[0], / CHANGED$/);
  t.match(
    lines[1],
    / registry +record\.forged +m_1 +key:\\u001b\[2J \(unknown\)$/,
    "control characters in an attacker's record name are escaped",
  );
  t.match(lines[2], / registry +record\.forged +m_1 +key:0123abcd \(older\)$/);
});

t.test('a change that is not in force on all gateways is stored and printed, but the command fails', async (t) => {
  const { admin, createKey, createMerchant, outwait, store } = await startRegistry(t);
  const { id } = await createMerchant();
  const { keyId } = await createKey(id);
  store.live = [gateway('a'), gateway('deaf', { revision: 2, acknowledges: false })];
  const pending = await outwait(admin('keys', 'revoke', keyId), 2);
  t.equal(pending.status, 1);
  t.match(pending.stdout, /^The key key_\w+ of the merchant m_\w+ is revoked\.\n$/);
  t.match(
    pending.stderr,
    /^The change is stored, but in force on only 1 of 2 gateways after 2000 ms\. Gateways that have not confirmed the change:\n {2}deaf \(deaf\.internal\) may decide requests without the change until 2026-01-15T12:00:33\.000Z by the registry's clock\n$/,
  );
  const json = await outwait(admin('keys', 'create', '--merchant', id, '--environment', 'live', '--json'), 2);
  t.equal(json.status, 1);
  t.match(JSON.parse(json.stdout), { key: /^svc_live_/, propagation: { pending: [{ instanceId: 'deaf' }] } });
  t.match(json.stderr, /^The change is stored, but in force on only/);

  store.fails = (one) => (one === 'write' ? 'before' : null);
  const unwritten = await outwait(admin('keys', 'create', '--merchant', id, '--environment', 'live'), 1);
  t.equal(unwritten.status, 1);
  t.equal(keysIn(unwritten.stdout).length, 1, 'the new key is still printed');
  t.notMatch(unwritten.stdout, 'In force');
  t.match(unwritten.stderr, /^The change is stored in the database, but not yet in the gateways' key store/);
  t.match(unwritten.stderr, /may have lost the change: check with "merchant-gateway events list"/);

  store.fails = () => null;
  store.live = [];
  const alone = await admin('keys', 'create', '--merchant', id, '--environment', 'live');
  t.equal(alone.status, 0);
  t.match(alone.stdout, 'No gateway is running, so none has to confirm it.');

  store.fails = (one) => (one === 'gateways' ? 'before' : null);
  const unasked = await outwait(admin('keys', 'create', '--merchant', id, '--environment', 'live'), 2);
  t.equal(unasked.status, 1);
  t.match(unasked.stderr, /the confirmations of the gateways could not be read/);
});

t.test('the claimed name of a change is the option, else the operating system user', async (t) => {
  const { admin, call, createMerchant } = await startRegistry(t);
  const { id } = await createMerchant();
  const claims = async (): Promise<(string | null)[]> =>
    (await call<{ claimed: string | null }[]>('GET', '/events')).body.data.map(({ claimed }) => claimed);
  t.same(await claims(), [null]);
  t.equal((await admin('merchants', 'set', id, '--name', 'a')).status, 0);
  t.equal((await admin('merchants', 'set', id, '--name', 'b', '--actor', 'ada@example.com')).status, 0);
  t.equal((await admin('events', 'list', '--actor', 'ada@example.com')).status, 0, 'a read accepts the option too');
  t.same(await claims(), ['ada@example.com', actorNamed(undefined), null]);
  t.match((await admin('events', 'list')).stdout, / bootstrap \(claims ada@example\.com\) +merchant\.changed /);

  t.equal(
    actorNamed(undefined, () => 'ada'),
    'ada',
  );
  t.equal(
    actorNamed(undefined, () => '_SHOP\\Ada L\u00f6we'),
    'SHOP-Ada-L-we',
  );
  t.equal(
    actorNamed(undefined, () => 'a'.repeat(100)),
    'a'.repeat(64),
  );
  for (const nameless of ['', '\u00f6', '_-']) {
    t.equal(
      actorNamed(undefined, () => nameless),
      null,
      'without a usable user name nothing is claimed',
    );
  }
});

t.test('a rejection by the registry is reported with a remedy', async (t) => {
  const { admin, createKey, createMerchant, store, url } = await startRegistry(t);
  const { id } = await createMerchant();
  const { keyId } = await createKey(id);
  await admin('keys', 'revoke', keyId);
  store.fails = () => 'before';
  const cases: [args: string[], sentence: RegExp][] = [
    [
      ['merchants', 'show', 'm_none'],
      /^The registry rejected the request \(status 404\): Merchant not found\. Check the id/,
    ],
    [['keys', 'revoke', 'key_none'], /^The registry rejected the request \(status 404\): Key not found\. /],
    [
      ['keys', 'reset', keyId],
      /^The registry rejected the request \(status 409\): Only an active key can be reset: create a new key\.\n$/,
    ],
    [
      ['merchants', 'create', '--name', '', '--status', 'active'],
      /^The registry rejected the request \(2 problems\):\n {2}name must be .*\n {2}status must be .*\n$/,
    ],
    [
      ['merchants', 'set', id, '--allow-ip', '10.0.0.0/8'],
      /^The registry rejected the request \(1 problem\):\n {2}ipAllowlist\[0\]: .*; add --confirm private_range if you want this\n$/,
    ],
    [['gateways', 'list'], /^The registry failed \(status 503\): The gateways' key store .*\. Try again/],
  ];
  for (const [args, sentence] of cases) {
    const { status, stdout, stderr } = await admin(...args);
    t.equal(status, 1, args.join(' '));
    t.equal(stdout, '', args.join(' '));
    t.match(stderr, sentence, args.join(' '));
  }
  setEnvironment({ token: 'another-token-of-administrators-01234' });
  const refused = await run(t, 'merchants', 'list', '--registry', url);
  setEnvironment();
  t.equal(refused.status, 1);
  t.match(refused.stderr, /^The registry rejected the request \(status 401\): Invalid token\. Check that --token-file/);
  t.notMatch(refused.stderr, 'another-token');
});

t.test("a response that is not a registry's is reported, with control characters escaped", async (t) => {
  const success = (data: unknown): string => JSON.stringify({ success: true, message: '', data });
  const merchant = { status: 'ACTIVE', goLive: false, ipAllowlist: null, originAllowlist: null, revision: 1 };
  const cases: [name: string, server: Parameters<typeof startResponding>, sentence: RegExp][] = [
    [
      'HTML',
      [t, 200, '<html>', { 'content-type': 'text/html' }],
      /did not respond like a registry .* \(status 200, text\/html\)/,
    ],
    ['a proxy', [t, 502, '<html>', { 'content-type': 'text/html' }], /did not respond like a registry .* \(status 502/],
    ['other JSON', [t, 200, '[]'], /did not respond like a registry/],
    ['other data', [t, 200, success([{ id: 7 }])], /did not respond like a registry/],
    [
      'an error with a terminal sequence',
      [t, 500, '{"success":false,"message":"\\u001b[2J\\u009b1mx\\u202ey","data":null}'],
      /\): \\u001b\[2J\\u009b1mx\\u202ey\. The registry's log/,
    ],
    [
      'a redirect',
      [t, 307, '', { location: 'http://203.0.113.9/merchants' }],
      /redirects \(status 307\) to http:\/\/203\.0\.113\.9\/merchants. Redirects are not followed/,
    ],
    [
      'a response that is too large',
      [t, 200, success('x'.repeat(17 * 1024 * 1024))],
      /exceeds 16777216 bytes\. Request fewer entries/,
    ],
  ];
  for (const [name, server, sentence] of cases) {
    const { url } = await startResponding(...server);
    const { status, stdout, stderr } = await run(t, 'merchants', 'list', '--registry', url, '--token-file', tokenFile);
    t.equal(status, 1, name);
    t.equal(stdout, '', name);
    t.match(stderr, sentence, name);
    t.notMatch(stderr, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/, name);
  }
  const elsewhere = await startResponding(t, 200, success([]));
  const redirecting = await startResponding(t, 307, '', { location: `${elsewhere.url}/merchants` });
  await run(t, 'merchants', 'list', '--registry', redirecting.url, '--token-file', tokenFile);
  t.equal(elsewhere.requests.length, 0, 'the token is not sent to the target of a redirect');

  const name = 'evil\u001b]0;x\u0007\u009b\nname \u{1f600}';
  const times = { createdAt: '2026-01-15T12:00:00Z', updatedAt: '2026-01-15T12:00:00Z' };
  const { url } = await startResponding(t, 200, success([{ id: 'm_1', name, ...merchant, ...times }]));
  const list = await run(t, 'merchants', 'list', '--registry', `${url}/`, '--token-file', tokenFile);
  t.equal(list.status, 0);
  t.match(list.stdout, 'evil\\u001b]0;x\\u0007\\u009b\\u000aname \u{1f600}');
  const json = await run(t, 'merchants', 'list', '--registry', url, '--token-file', tokenFile, '--json');
  t.match(json.stdout, 'evil\\u001b]0;x\\u0007\\u009b\\nname \u{1f600}');
  t.match(JSON.parse(json.stdout), [{ name }], 'the JSON has the same value');
});

t.test('after a failed write the command warns that the change may have been made', async (t) => {
  const message = (text: string): string => JSON.stringify({ success: false, message: text, data: null });
  const create = ['merchants', 'create', '--name', 'Ada'];
  const read = ['merchants', 'list'];
  const checkHint =
    /The change may have been made nevertheless: check with "merchant-gateway events list" before you try again\.\n$/;
  const log = "The registry's log has the reason.";
  const cases: [args: string[], server: [status: number, body: string], sentence: RegExp | string][] = [
    [create, [503, message('Service unavailable')], checkHint],
    [['keys', 'revoke', 'key_1'], [503, message('Service unavailable')], checkHint],
    [create, [500, message('Internal error')], checkHint],
    [create, [500, message('Internal error')], log],
    [create, [504, '<html>'], checkHint],
    [
      read,
      [503, message('Service unavailable')],
      /: Service unavailable\. Try again\. If this fails again, read the registry's log\.\n$/,
    ],
    [read, [500, message('Internal error')], `: Internal error. ${log}\n`],
    [read, [504, '<html>'], /Check --registry, and the proxies between this machine and the registry\.\n$/],
  ];
  for (const [args, [code, body], sentence] of cases) {
    const { url } = await startResponding(t, code, body);
    const { status, stderr } = await run(t, ...args, '--registry', url, '--token-file', tokenFile);
    t.equal(status, 1);
    t.match(stderr, sentence, `${args.join(' ')} ${code}`);
    if (sentence === checkHint) t.notMatch(stderr, 'Try again.');
  }
});

t.test('a connection failure is reported with its cause and whether a change may have been made', async (t) => {
  const ask = (url: string, ...args: string[]): Promise<Result> =>
    run(t, ...args, '--registry', url, '--token-file', tokenFile);
  const nowhere = `http://127.0.0.1:${await freePort()}`;
  const refused = await ask(nowhere, 'merchants', 'list');
  t.equal(refused.status, 1);
  t.equal(
    refused.stderr,
    `Cannot reach the registry at ${nowhere}/: the connection was refused. Start the registry, or give the right address with --registry.\n`,
  );

  const pair = await createSelfSigned(new Date());
  const untrusted = https.createServer(pair, (_request, response) => response.end());
  await once(untrusted.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => untrusted.close());
  const { port } = untrusted.address() as AddressInfo;
  const certificate = await ask(`https://127.0.0.1:${port}`, 'merchants', 'list');
  t.equal(certificate.status, 1);
  t.match(certificate.stderr, /its certificate is not trusted \(DEPTH_ZERO_SELF_SIGNED_CERT\)\. .*--ca-file/);
  const peer = { ...registryPeer, option: 'services.operators.trail.url' } as const;
  const trail = new AdminClient({ peer, address: new URL(`https://127.0.0.1:${port}`), token });
  await t.rejects(trail.ask({ method: 'GET', path: ['merchants'], expects: Type.Unknown() }), {
    message:
      /Give the file of its CA with services\.operators\.trail\.caFile, and check services\.operators\.trail\.url\.$/,
  });

  const hangingUp = await startServer(t, (request) => request.socket.destroy());
  const read = await ask(hangingUp, 'merchants', 'list');
  t.match(
    read.stderr,
    /the connection failed \(\w+\); if it serves TLS, .* https:\/\/\. Check the registry and the network, and try again\.\n$/,
  );
  const change = await ask(hangingUp, 'keys', 'revoke', 'key_1');
  t.equal(change.status, 1);
  t.match(
    change.stderr,
    /The change may have been made nevertheless: check with "merchant-gateway events list" before you try again\.\n$/,
  );

  const silent = await startServer(t, () => undefined);
  const client = new AdminClient({ address: new URL(silent), token, timeoutMilliseconds: 50 });
  await t.rejects(client.ask({ method: 'GET', path: ['merchants'], expects: Type.Unknown() }), {
    message: /it did not respond within 0\.05 seconds\. /,
  });
});

t.test('address and token come from options, then the environment, then the configuration', async (t) => {
  const { url, createMerchant } = await startRegistry(t);
  await createMerchant();
  const { port } = new URL(url);
  const config = path.join(directory, 'registry.yaml');
  await writeFile(config, `registry: { listen: { host: 0.0.0.0, port: ${port} }, tokenFile: ${tokenFile} }\n`);
  const lists = async (name: string, ...args: string[]): Promise<void> => {
    const { status, stderr } = await run(t, 'merchants', 'list', ...args);
    t.same({ status, stderr }, { status: 0, stderr: '' }, name);
  };
  const nowhere = 'http://127.0.0.1:1';
  const wrong = 'a-token-that-is-wrong-0123456789-012345';
  await lists('the configuration', '--config', config);
  setEnvironment({ registry: url, token: `${token}\n` });
  await lists('the environment');
  const other = path.join(directory, 'other.yaml');
  await writeFile(other, `registry: { listen: { port: 1 }, tokenFile: /nowhere }\n`);
  await lists('the environment before the configuration', '--config', other);
  setEnvironment({ registry: nowhere, token: wrong });
  await lists('options before all', '--config', other, '--registry', url, '--token-file', tokenFile);
  setEnvironment();
  const missing = await run(t, 'merchants', 'list', '--token-file', path.join(directory, 'none'));
  t.equal(missing.status, 1);
  t.match(missing.stderr, /^The token file .*none cannot be read: there is no such file\.\n$/);
  const { status, stderr } = await run(t, 'merchants', 'list', '--config', path.join(directory, 'none.yaml'));
  t.equal(status, 2);
  t.match(stderr, 'none.yaml');
});

t.test('a usage error exits with status 2, sends no request and repeats no secret', async (t) => {
  const { url, requests } = await startResponding(t, 200, '{}');
  const key = `svc_live_${'k'.repeat(49)}`;
  const cases: [args: string[], sentence: RegExp][] = [
    [['merchants'], /Usage:/],
    [['keys', 'bogus'], /unknown command/],
    [['merchants', 'create'], /--name <name>' not specified/],
    [['merchants', 'show'], /missing required argument 'id'/],
    [['merchants', 'show', '..'], /the id of a merchant must consist of 1 to 64 letters/],
    [['merchants', 'set', 'm_1'], /give at least one change/],
    [['merchants', 'set', 'm_1', '--confirm', 'open_range'], /give at least one change/],
    [['merchants', 'set', 'm_1', '--any-ip', '--allow-ip', '203.0.113.7'], /cannot be used with/],
    [['merchants', 'set', 'm_1', '--deny-every-ip', '--allow-ip', '203.0.113.7'], /cannot be used with/],
    [['merchants', 'set', 'm_1', '--deny-every-origin', '--any-origin'], /cannot be used with/],
    [
      ['keys', 'revoke', 'key_1', '--actor', 'Ada L'],
      /--actor must begin with a letter or a digit, consist of 1 to 64 letters/,
    ],
    [
      ['keys', 'revoke', 'key_1', '--actor=-ada'],
      /must begin with a letter or a digit, consist of 1 to 64 .* and contain no API key/,
    ],
    [['keys', 'create', '--merchant', 'm_1'], /--environment <name>' not specified/],
    [['keys', 'create', '--merchant', 'm_1', '--environment', 'prod'], /Allowed choices are live, test/],
    [
      ['keys', 'create', '--merchant', 'm_1', '--environment', 'live', '--expires-in', '3 days'],
      /such as 30m, 12h or 90d/,
    ],
    [['keys', 'reset', 'key_1', '--grace', '0'], /such as 30m, 12h or 90d/],
    [['keys', 'revoke', key], /this is an API key or a token, not an id/],
    [['restores', 'lift', key], /this is an API key or a token, not an id/],
    [['events', 'list', '--key', key], /this is an API key or a token, not an id/],
    [['events', 'list', '--key-id', key], /this is an API key or a token, not an id/],
    [['merchants', 'list', `--token=${token}`], /a token is never an argument, because/],
    [['merchants', 'list', '--token', token], /a token is never an argument, because/],
    [['merchants', 'list', '--registry', 'ftp://127.0.0.1'], /must be an http or https URL/],
    [['merchants', 'list', '--registry', 'localhost:9443'], /must be an http or https URL/],
    [['merchants', 'list', '--registry', 'http://ada:secret-word@127.0.0.1'], /must be an http or https URL/],
  ];
  for (const [args, sentence] of cases) {
    const access = args.includes('--registry') || args.length < 2 ? [] : ['--registry', url];
    const { status, stdout, stderr } = await run(
      t,
      ...args,
      ...(args.length < 2 ? [] : ['--token-file', tokenFile]),
      ...access,
    );
    t.equal(status, 2, args[1] ?? '');
    t.equal(stdout, '');
    t.match(stderr, sentence);
    t.notMatch(stderr, 'secret-word');
  }
  const without = await run(t, 'merchants', 'list', '--registry', url);
  t.equal(without.status, 2);
  t.match(without.stderr, /a token is required\. Give its file with --token-file, or with registry\.tokenFile/);
  setEnvironment({ token: 'two words\u0000' });
  const odd = await run(t, 'merchants', 'list', '--registry', url);
  setEnvironment();
  t.equal(odd.status, 2);
  t.match(odd.stderr, /MERCHANT_GATEWAY_TOKEN must contain one token/);
  t.notMatch(odd.stderr, 'two words');
  t.equal(requests.length, 0);
  for (const args of ['merchants set', 'keys reset', 'gateways list', 'restores lift', 'events list']) {
    const help = await run(t, ...args.split(' '), '--help');
    t.equal(help.status, 0);
    t.match(help.stdout, /--token-file <file>[^]*--json[^]*Exit status: 0/, args);
    t.notMatch(help.stdout, '--token [token]', args);
  }
});

t.test('a token file is created once there is a token, and never overwritten', async (t) => {
  const { admin, call } = await startRegistry(t);
  const { body } = await call<{ id: string }>('POST', '/administrators', { body: { name: 'ada', roles: ['auditor'] } });
  const file = path.join(directory, 'new-token');
  const create = (administrator: string) =>
    admin('tokens', 'create', '--name', 'laptop', '--administrator', administrator, '--output', file);
  t.equal((await create('adm_nobody')).status, 1);
  t.equal(existsSync(file), false, 'no file is left behind');
  t.match(await create(body.data.id), { status: 0, stderr: '' });
  const created = readFileSync(file, 'utf8');
  t.match(created, /^mga_\S+\n$/);
  t.match(await create('adm_nobody'), { status: 1, stderr: /it exists already; give another name/ });
  t.equal(readFileSync(file, 'utf8'), created);
  const nowhere = path.join(directory, 'none', 'token');
  const failed = await admin(
    'tokens',
    'create',
    '--name',
    'laptop',
    '--administrator',
    body.data.id,
    '--output',
    nowhere,
  );
  t.match(failed, { status: 1, stderr: `Cannot create ${nowhere}: the directory does not exist.` });
});

t.test('Ctrl-C does not lose a new token or key', async (t) => {
  const { url, call, createMerchant } = await startRegistry(t);
  const { body } = await call<{ id: string }>('POST', '/administrators', { body: { name: 'ada', roles: ['auditor'] } });
  const { id } = await createMerchant();
  let creating: ChildProcess | null = null;
  const registry = await startServer(t, (request, response) => {
    creating?.kill('SIGINT');
    // Sends the signal twice, because a terminal and npm both send it to the command.
    if (creating !== null) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50);
    creating?.kill('SIGINT');
    // From now on, requests cause no signal. A signal that arrives a second or more after the first one would end the
    // command at once.
    creating = null;
    forward(url, request, response);
  });
  const env = { ...process.env, MERCHANT_GATEWAY_REGISTRY: registry, MERCHANT_GATEWAY_TOKEN: token };
  const interrupted = async (...args: string[]) => {
    const child = spawn(...productCommand(args), { env, stdio: ['ignore', 'pipe', 'pipe'] });
    creating = child;
    killAtEnd(t, child);
    let output = '';
    child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
    const [status] = (await once(child, 'close')) as [number | null];
    return { status, output };
  };
  const file = path.join(t.testdir(), 'token');
  const owner = ['--administrator', body.data.id];
  const created = await interrupted('tokens', 'create', '--name', 'laptop', ...owner, '--output', file);
  t.equal(created.status, 130);
  t.match(readFileSync(file, 'utf8'), /^mga_\S+\n$/);
  const { output } = await interrupted('keys', 'create', '--merchant', id, '--environment', 'live');
  t.match(output, /svc_live_\w{49}/, 'the key is shown');
});

t.test('a token that does not fit on the disk leaves no file, and the error says how to revoke it', async (t) => {
  const { url, admin, call } = await startRegistry(t);
  const { body } = await call<{ id: string }>('POST', '/administrators', { body: { name: 'ada', roles: ['auditor'] } });
  const administratorId = body.data.id;
  const file = path.join(t.testdir(), 'token');
  const env = { ...process.env, MERCHANT_GATEWAY_REGISTRY: url, MERCHANT_GATEWAY_TOKEN: token };
  const args = ['tokens', 'create', '--name', 'laptop', '--administrator', administratorId, '--output', file];
  const child = spawn(...limitedCommand(0, args), { env });
  let [output, errors] = ['', ''];
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()));
  const [status] = (await once(child, 'close')) as [number];
  const tokens = await call<{ id: string }[]>('GET', `/tokens?administratorId=${administratorId}`);
  const id = tokens.body.data[0]?.id ?? '';
  t.equal(
    errors,
    `The token ${id} was created but cannot be written to ${file}: EFBIG. ` +
      `Revoke it with "merchant-gateway tokens revoke ${id}".\n`,
  );
  t.equal(status, 1);
  t.equal(output, '');
  t.equal(existsSync(file), false, 'no file is left behind');
  t.equal((await admin('tokens', 'revoke', id)).status, 0);
});

t.test('the process prints the result, exits without delay and returns the exit status', async (t) => {
  const { url, createMerchant } = await startRegistry(t);
  const { id } = await createMerchant();
  const env = { ...process.env, MERCHANT_GATEWAY_REGISTRY: url, MERCHANT_GATEWAY_TOKEN: token };
  for (const [merchant, expected] of [
    [id, 0],
    ['m_none', 1],
  ] as const) {
    const child = spawn(...productCommand(['merchants', 'show', merchant, '--json']), { env });
    let output = '';
    child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
    const [status] = (await once(child, 'close')) as [number];
    t.equal(status, expected);
    if (expected === 0) t.match(JSON.parse(output), { id });
    else t.equal(output, '');
  }
});
