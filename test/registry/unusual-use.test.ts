import type { Test } from 'tap';
import { loadConfig } from '../../src/config/load.js';
import { type UsageBatch, dayMilliseconds } from '../../src/usage/batch.js';
import { batchText } from '../usage/batch-text.js';
import { UsageBatches, type UsageObserver } from '../../src/registry/usage/usage-batches.js';
import { UnusualUse } from '../../src/registry/unusual/unusual-use.js';
import { onEachDatabase } from '../database/each-database.js';
import { type GivenRequests, keyUsage } from '../usage/key-usage.js';
import { registryFixture } from './registry-fixture.js';

const thresholds = loadConfig({}).registry.unusual;
const start = Date.UTC(2026, 2, 2, 9);
const at = (day: number): number => start + day * dayMilliseconds;
const abroad = { country: 'KE', asNumber: 64_999, address: '198.51.100.1' };

interface Listed {
  readonly id: string;
  readonly kind: string;
  readonly keyId: string;
  readonly decision: string | null;
}

/** A registry with a key that was used for ten days. */
async function fixture(t: Test, url: string, options: { readonly reasonFor?: ReadonlySet<string> } = {}) {
  const use = new UnusualUse({ thresholds, targets: ['target'] });
  const registry = await registryFixture(t, url, { unusual: { use, targets: [] }, ...options });
  const merchant = await registry.createMerchant({ status: 'ACTIVE', goLive: true });
  const key = await registry.createKey(merchant.id);
  let sequence = 0;
  const batch = (usages: UsageBatch['keys'], environment: 'live' | 'test' = 'live'): UsageBatch => ({
    ...({ version: 1, process: 'p', instance: 'gateway:1', environment, isLast: false } as const),
    ...{ sequence: (sequence += 1), acknowledged: 0, from: 0, to: 0, dropped: { refusals: 0 } },
    ...{ keys: usages, merchants: [], unknown: { codes: [], addresses: [] } },
  });
  const observe = (one: UsageBatch, now: number, by = use): Promise<void> =>
    registry.database.transaction().execute((transaction) => by.observe(transaction, one, now));
  const send = (requests: readonly GivenRequests[], now: number): Promise<void> =>
    observe(batch([keyUsage(key.keyId, requests)]), now);
  for (let day = 0; day < 10; day += 1) await send([{ at: at(day), count: 10 }], at(day) + 1_000);
  const list = async (query = ''): Promise<Listed[]> =>
    (await registry.call<Listed[]>('GET', `/unusual${query}`)).body.data;
  return { ...registry, merchant, key, batch, observe, send, list, use };
}

onEachDatabase('a finding is stored once, with its event and webhook, by two registries at once', async (t, url) => {
  const { key, merchant, batch, observe, list, database, call } = await fixture(t, url);
  t.same(await list(), []);
  const other = new UnusualUse({ thresholds, targets: ['target'] });
  const one = batch([keyUsage(key.keyId, [{ at: at(10), ...abroad }])]);
  const two = batch([keyUsage(key.keyId, [{ at: at(10), ...abroad, address: '198.51.200.1' }])]);
  await Promise.all([observe(one, at(10) + 1_000), observe(two, at(10) + 1_000, other)]);
  await observe(one, at(10) + 2_000);
  const found = await list();
  t.match(found, [
    { keyId: key.keyId, merchantId: merchant.id, rule: 'new-country', kind: 'new-country:KE', decision: null },
  ]);
  t.equal(found.length, 1);
  const events = await call<unknown[]>('GET', `/events?keyId=${key.keyId}&action=key.unusual-use`);
  t.match(events.body.data, [{ actor: 'registry', after: { id: found[0]?.id, kind: 'new-country:KE' } }]);
  const webhooks = await database.selectFrom('webhooks').selectAll().execute();
  t.match(webhooks, [{ target: 'target', attempts: 0, given_up_at: null }]);
  t.match(JSON.parse(webhooks[0]?.body ?? ''), { type: 'key.unusual-use', data: { id: found[0]?.id } });
  t.notMatch(webhooks[0]?.body, /svc_live_/);
});

onEachDatabase('a batch that a gateway sends again is observed once', async (t, url) => {
  const { key, batch, database, time, use, list } = await fixture(t, url);
  let observed = 0;
  const observer: UsageObserver = (...given) => {
    observed += 1;
    return use.observe(...given);
  };
  const batches = new UsageBatches({ database, clock: time, addresses: 'full', observers: [observer] });
  const tor = [{ at: time.now(), code: 'tor_blocked' }];
  const body = await batchText({ ...batch([keyUsage(key.keyId, tor)]), sequence: 1, process: 'q' });
  for (let number = 0; number < 3; number += 1) await batches.add(body);
  t.equal(observed, 1);
  t.match(await list(), [{ rule: 'tor' }]);
});

onEachDatabase('a pattern that is fine is not reported again; "look" keeps it open', async (t, url) => {
  const { send, list, call } = await fixture(t, url);
  await send([{ at: at(10), ...abroad }], at(10) + 1_000);
  const [found] = await list('?status=open');
  const decide = (id: string, body: object) => call('POST', `/unusual/${id}/answer`, { body });
  t.match(await decide(found?.id ?? '', { answer: 'look' }), { status: 200, body: { data: { decision: 'look' } } });
  t.equal((await list('?status=open')).length, 1);
  t.match(await decide(found?.id ?? '', { answer: 'fine' }), {
    status: 200,
    body: { data: { decision: 'fine', decidedBy: 'bootstrap', propagation: null } },
  });
  t.same(await list('?status=open'), []);
  t.equal((await list('?status=answered&rule=new-country')).length, 1);
  await send([{ at: at(20), code: 'tor_blocked' }], at(20) + 1_000);
  t.same(
    (await list('?status=open')).map(({ kind }) => kind),
    ['tor'],
    'another pattern is reported',
  );
  const [tor] = await list('?status=open');
  await decide(tor?.id ?? '', { answer: 'fine' });
  await send([{ at: at(40), code: 'tor_blocked' }], at(40) + 1_000);
  t.same(await list('?status=open'), []);
  t.match(await decide(found?.id ?? '', { answer: 'no' }), { status: 422 });
  t.match(await decide('unu_none', { answer: 'fine' }), { status: 404 });
  t.match(await call('GET', '/events?action=key.unusual-use-decided'), { body: { meta: { total_records: 3 } } });
});

onEachDatabase('an answer can revoke the key; then its use is not compared any more', async (t, url) => {
  const { key, send, list, call, outwait } = await fixture(t, url);
  await send([{ at: at(10), ...abroad }], at(10) + 1_000);
  const [found] = await list();
  const path = `/unusual/${found?.id ?? ''}/answer`;
  const response = await outwait(call('POST', path, { body: { answer: 'revoked' } }), 1);
  t.match(response, { body: { data: { decision: 'revoked', propagation: { gateways: 0 } } } });
  t.match(await call('GET', `/events?keyId=${key.keyId}&action=key.revoked`), { body: { meta: { total_records: 1 } } });
  await send([{ at: at(12), code: 'tor_blocked' }], at(12) + 1_000);
  t.equal((await list()).length, 1);
});

onEachDatabase('an answer that revokes needs the reason that a revocation needs', async (t, url) => {
  const { send, list, call } = await fixture(t, url, { reasonFor: new Set(['keys:revoke']) });
  await send([{ at: at(10), ...abroad }], at(10) + 1_000);
  const [found] = await list();
  const response = await call('POST', `/unusual/${found?.id ?? ''}/answer`, { body: { answer: 'revoked' } });
  t.match(response, { status: 400, body: { data: { code: 'reason_required' } } });
  t.match((await call('GET', '/events?action=attempt.refused')).body.data, [{ after: { needs: 'a reason' } }]);
  t.match(await list(), [{ decision: null }]);
});

onEachDatabase(
  'a key that gateways did not look up is found by its look-up id; unknown and test keys are not',
  async (t, url) => {
    const { key, batch, observe, list, database } = await fixture(t, url);
    const row = await database
      .selectFrom('api_keys')
      .select('lookup_id')
      .where('key_id', '=', key.keyId)
      .executeTakeFirstOrThrow();
    const tor = [{ at: at(10), code: 'tor_blocked' }];
    await observe(batch([keyUsage(null, tor, 'f'.repeat(64)), keyUsage(null, tor), keyUsage('key_none', tor)]), at(10));
    await observe(batch([keyUsage(key.keyId, tor)], 'test'), at(10));
    t.same(await list(), []);
    await observe(batch([keyUsage(null, tor, row.lookup_id)]), at(10));
    t.match(await list(), [{ keyId: key.keyId, rule: 'tor' }]);
  },
);

onEachDatabase('each rule says why it is off', async (t, url) => {
  const { call, send, time, database } = await fixture(t, url);
  const states = async (): Promise<Record<string, string | null>> => {
    const { body } = await call<{ rule: string; isOff: string | null }[]>('GET', '/unusual/rules');
    return Object.fromEntries(body.data.map(({ rule, isOff }) => [rule, isOff]));
  };
  await database.deleteFrom('usage_watch').execute();
  t.match(await states(), { tor: /no gateway has sent request counts in the last 24 hours/ });
  const now = time.now();
  await send([{ at: now, country: null, asNumber: null }], now);
  t.match(await states(), { tor: null, 'new-country': /no gateway has sent the country/, 'new-network': /geoip/ });
  await send([{ at: now }], now);
  t.match(await states(), { 'new-country': null, 'new-network': null });
  time.advance(-2 * dayMilliseconds);
  t.match(await states(), { tor: /no gateway has sent request counts/ }, 'the clock was ahead');
});

onEachDatabase('a clock that was ahead for a while does not turn the rule about idle keys off', async (t, url) => {
  const { batch, observe, send, list, database } = await fixture(t, url);
  await observe(batch([]), at(400));
  await observe(batch([]), at(10));
  const watch = await database.selectFrom('usage_watch').selectAll().execute();
  t.match(watch, [{ since: at(10), last_at: at(10) }]);
  for (let day = 11; day <= 60; day += 1) await observe(batch([]), at(day));
  await send([{ at: at(60) }], at(60) + 1_000);
  t.equal((await list('?rule=idle-key')).length, 1);
});

onEachDatabase(
  'roles: members see the findings of their merchant, and only some may answer or revoke',
  async (t, url) => {
    const { call, createMerchant, merchant, send, list } = await fixture(t, url);
    await send([{ at: at(10), ...abroad }], at(10) + 1_000);
    const [found] = await list();
    const other = await createMerchant({ name: 'Other' });
    const tokenOf = async (name: string, fields: object): Promise<Record<string, string>> => {
      const person = await call<{ id: string }>('POST', '/administrators', { body: { name, ...fields } });
      const body = { name: 't', administratorId: person.body.data.id, expiresInSeconds: 3_600 };
      const made = await call<{ token: string }>('POST', '/tokens', { body });
      return { authorization: `Bearer ${made.body.data.token}` };
    };
    const own = await tokenOf('own', { roles: ['merchant-viewer'], merchantId: merchant.id });
    const foreign = await tokenOf('foreign', { roles: ['merchant-admin'], merchantId: other.id });
    const auditor = await tokenOf('auditor', { roles: ['auditor'] });
    const path = `/unusual/${found?.id ?? ''}`;
    t.match(await call('GET', '/unusual', { headers: own }), { status: 200, body: { meta: { total_records: 1 } } });
    t.match(await call('GET', path, { headers: own }), { status: 200 });
    t.match(await call('GET', '/unusual', { headers: foreign }), { status: 200, body: { meta: { total_records: 0 } } });
    const query = `/unusual?merchantId=${merchant.id}`;
    t.match(await call('GET', query, { headers: foreign }), { body: { meta: { total_records: 0 } } });
    t.match(await call('GET', path, { headers: foreign }), { status: 404 });
    t.match(await call('GET', '/unusual/webhooks', { headers: own }), { status: 404 });
    const body = { answer: 'fine' };
    t.match(await call('POST', `${path}/answer`, { headers: own, body }), { status: 404 });
    t.match(await call('POST', `${path}/answer`, { headers: auditor, body }), { status: 403 });
    t.match(await call('GET', '/unusual', { headers: auditor }), { status: 200 });
  },
);
