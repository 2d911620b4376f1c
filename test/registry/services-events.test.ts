import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import t from 'tap';
import { chainStart, ChainCheck } from '../../src/evidence/event-chain.js';
import type { RegistryEvent } from '../../src/registry/events/schema.js';
import type { ServicesEvent } from '../../src/rest/trail/services-events.js';
import { onEachDatabase } from '../database/each-database.js';
import { registryFixture } from './registry-fixture.js';

function eventWith(changes: object = {}): ServicesEvent {
  return {
    ...{ id: randomUUID(), at: '2026-01-15T11:59:00.000Z', action: 'wallet.funded', merchantId: 'm_1', actor: 'tess' },
    ...{ administratorId: 'adm_1', proof: 'token:tok_1', claimed: null, source: '10.0.0.7', reason: 'Deposit' },
    before: { balance: 5 },
    after: {
      ...{ walletId: '00000000-0000-4000-8000-000000000001', environment: 'live', currency: 'NGN' },
      ...{ balance: 12, amount: 7, reference: 'deposit-1' },
    },
    ...changes,
  };
}

async function fixture(t: Parameters<typeof registryFixture>[0], url: string) {
  const registry = await registryFixture(t, url);
  const { call } = registry;
  const create = async (name: string, role: string, more: object = {}) => {
    const body = { name, roles: [role], ...more };
    const { id } = (await call<{ id: string }>('POST', '/administrators', { body })).body.data;
    const created = await call<{ token: string }>('POST', '/tokens', { body: { name: 'x', administratorId: id } });
    return { authorization: `Bearer ${created.body.data.token}` };
  };
  const headers = await create('ledger', 'services');
  const append = (events: readonly object[], from: Record<string, string> = headers) =>
    call('POST', '/events/services', { body: { events }, headers: from });
  const ofWallets = async (): Promise<RegistryEvent[]> =>
    (await call<RegistryEvent[]>('GET', '/events?per_page=100')).body.data.filter(({ action }) =>
      action.startsWith('wallet.'),
    );
  const verified = async () => {
    const { data: state } = (
      await call<{ head: { position: number; hash: string }; unchained: { count: number } }>('GET', '/events/chain')
    ).body;
    const check = new ChainCheck({ from: chainStart, checkpoints: [] });
    const rows = await call<{ events: Parameters<ChainCheck['add']>[0][] }>('GET', '/events/chain/rows');
    for (const event of rows.body.data.events) check.add(event);
    check.end(state.head);
    return { faults: check.faults, unchained: state.unchained.count };
  };
  return { ...registry, append, create, ofWallets, verified };
}

onEachDatabase('an event of the services is appended once, with its author and who reported it', async (t, url) => {
  const { append, ofWallets, time, verified } = await fixture(t, url);
  const [first, second] = [eventWith(), eventWith({ action: 'wallet.withdrawn' })];
  t.match(await append([first]), { status: 200, body: { data: { appended: 1 } } });
  t.match(await append([first]), { status: 200, body: { data: { appended: 0 } } }, 'sent again');
  t.match(await append([first, second, second]), { status: 200, body: { data: { appended: 1 } } });
  const changed = { ...first, actor: 'eve', after: { ...first.after, amount: 1 } };
  t.match(await append([changed]), { body: { data: { appended: 0 } } }, 'a stored event cannot be replaced');
  const events = await ofWallets();
  t.equal(events.length, 2);
  const { seq, revision, ...stored } = events[1] ?? ({} as RegistryEvent);
  t.ok(seq > 0 && revision >= 0);
  t.same(stored, {
    ...{
      at: new Date(time.now()).toISOString(),
      actor: 'tess',
      action: 'wallet.funded',
      merchantId: 'm_1',
      keyId: null,
    },
    before: { balance: 5 },
    after: { ...first.after, at: first.at, reportedBy: 'ledger' },
    ...{ administratorId: 'adm_1', proof: 'token:tok_1', claimed: null, source: '10.0.0.7', reason: 'Deposit' },
    requestId: first.id,
  });
  t.same(await verified(), { faults: 0, unchained: 0 });
});

onEachDatabase('concurrent copies of a batch are appended once', async (t, url) => {
  const { append, ofWallets, verified } = await fixture(t, url);
  const events = Array.from({ length: 10 }, () => eventWith());
  const responses = await Promise.all(Array.from({ length: 5 }, () => append(events)));
  t.ok(responses.every(({ status }) => status === 200));
  t.equal((await ofWallets()).length, 10);
  t.same(await verified(), { faults: 0, unchained: 0 });
});

onEachDatabase('the id of a request of the registry itself hides no event', async (t, url) => {
  const { append, call, ofWallets, database } = await fixture(t, url);
  const { headers } = await call('POST', '/merchants', { body: { name: 'Shop' } });
  t.match(await append([eventWith({ id: headers['x-request-id'] })]), { body: { data: { appended: 1 } } });
  t.equal((await ofWallets()).length, 1);
  await t.rejects(sql`delete from events where action = 'wallet.funded'`.execute(database), { message: /can only/ });
});

const refusals = { cause: 'invalid', refusals: 3, causes: { invalid: 3 }, since: '2026-01-15T11:58:00.000Z' };
const unproven = { actor: 'unknown', administratorId: null, proof: 'unproven', reason: null };
const signIn = { ...unproven, action: 'sign-in.failed', merchantId: '', before: null, after: refusals };
const attempt = {
  ...{ action: 'attempt.refused', merchantId: '', reason: null, before: null },
  after: { ...refusals, method: 'POST', route: '/wallets/:id/fund', needs: 'wallets:fund' },
};
const read = { action: 'merchant.read', before: null, after: { what: 'entries' } };

onEachDatabase('refused attempts and first reads in the services are events of the registry', async (t, url) => {
  const { append, call, verified } = await fixture(t, url);
  const all = [signIn, attempt, read].map((changes) => eventWith(changes));
  t.match(await append(all), { status: 200, body: { data: { appended: 3 } } });
  t.match(await append(all), { body: { data: { appended: 0 } } }, 'sent again');
  const { data } = (await call<RegistryEvent[]>('GET', '/events?per_page=3')).body;
  const added = { at: '2026-01-15T11:59:00.000Z', reportedBy: 'ledger' };
  t.match(data, [
    { ...read, actor: 'tess', merchantId: 'm_1', after: { ...read.after, ...added }, requestId: all[2]?.id },
    { ...attempt, actor: 'tess', administratorId: 'adm_1', after: { ...attempt.after, ...added } },
    { ...signIn, source: '10.0.0.7', after: { ...refusals, ...added } },
  ]);
  t.same(await verified(), { faults: 0, unchained: 0 });
});

t.test('only the services and owners may append, and nothing but what services send', async (t) => {
  const { append, call, create, ofWallets } = await fixture(t, 'sqlite::memory:');
  for (const role of ['operator', 'support', 'auditor', 'treasurer'])
    t.match(await append([eventWith()], await create(`the-${role}`, role)), {
      status: 403,
      body: { data: { permission: 'events:append' } },
    });
  t.equal((await append([eventWith()], { authorization: 'Bearer nothing' })).status, 401);
  const services = await create('other', 'services');
  t.match(await call('GET', '/events', { headers: services }), { status: 403 });
  for (const changes of [
    { action: 'key.created' },
    { action: 'sign-in.succeeded' },
    { merchantId: 'm 1' },
    { actor: '' },
    { actor: 'svc_live_0123456789' },
    { proof: 'registry' },
    { proof: 'unproven' },
    { id: 'one' },
    { at: 'yesterday' },
    { source: 'localhost' },
    { reason: 'svc_test_0123456789' },
    { reason: 'a'.repeat(201) },
    { after: { ...eventWith().after, balance: -1 } },
    { after: { ...eventWith().after, note: 'x' } },
    { revision: 1 },
    ...[{ actor: 'tess' }, { administratorId: 'adm_1' }, { proof: 'bootstrap' }, { merchantId: 'm_1' }].map((one) => ({
      ...signIn,
      ...one,
    })),
    ...[{ refusals: 0 }, { cause: 'svc live' }, { causes: { Invalid: 1 } }, { since: 'then' }, { note: 'x' }].map(
      (one) => ({
        ...signIn,
        after: { ...refusals, ...one },
      }),
    ),
    { ...attempt, ...unproven },
    { ...attempt, after: refusals },
    { ...attempt, after: { ...attempt.after, route: '/wallets?token=1' } },
    { ...read, ...unproven },
    { ...read, after: { what: 'keys' } },
    { ...read, after: { what: 'entries', refusals: 1 } },
    { action: 'merchant.read' },
  ])
    t.match(await append([eventWith(), eventWith(changes)]), { status: 422 }, JSON.stringify(changes));
  t.equal((await append([])).status, 422);
  t.equal((await append(Array.from({ length: 101 }, () => eventWith()))).status, 422);
  t.same(await ofWallets(), [], 'a batch with an invalid event is rejected as a whole');
  t.equal((await append(Array.from({ length: 100 }, () => eventWith()))).status, 200);
});
