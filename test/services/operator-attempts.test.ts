import t, { type Test } from 'tap';
import { sql } from 'kysely';
import { servicesEventSchema, type ServicesEvent } from '../../src/rest/trail/services-events.js';
import { OperatorAttempts } from '../../src/services/operators/operator-attempts.js';
import { OperatorEvents } from '../../src/services/operators/operator-events.js';
import { Check } from '../../src/typebox/typebox.js';
import { ManualTime, until } from '../registry/manual-time.js';
import { operatorsOf } from './operators-fixture.js';
import { onEachServices, servicesFixture, type ServicesUnderTest } from './services-fixture.js';

/** An operator whose token is their name. */
function operator(name: string, permissions: readonly ('wallets:read' | 'wallets:write' | 'wallets:fund')[]) {
  return {
    ...{ name, administratorId: `adm_${name}`, proof: `token:tok_${name}`, reasonFor: [], permissions },
    ...{ fundingLimits: { NGN: 100 }, approved: null, sources: null },
  };
}

const operators = [
  operator('tess', ['wallets:read', 'wallets:write', 'wallets:fund']),
  operator('rita', ['wallets:read']),
  { ...operator('rea', ['wallets:read']), reasonFor: ['wallets:read'] as const },
  { ...operator('rob', ['wallets:read']), clientAddress: '203.0.113.9' },
  { ...operator('una', ['wallets:read']), clientAddress: null },
];

/** The operators' API with its record of failed attempts, and the events that a registry would get. */
function fixture(t: Test, services: ServicesUnderTest, waiting = () => 0) {
  const { database, clock } = services;
  const time = new ManualTime();
  const attempts = new OperatorAttempts({ database, clock, now: time.now, timers: time, waiting });
  const administrators = (token: string) => Promise.resolve(operators.find(({ name }) => name === token) ?? null);
  const api = operatorsOf(t, services, { administrators, storesEvents: true, attempts });
  const ask = async (url: string, headers: Record<string, string> = {}, remoteAddress = '127.0.0.1') => {
    const response = await api.app.inject({ url, headers, remoteAddress });
    return { status: response.statusCode, id: response.headers['x-request-id'] };
  };
  const by = (name: string) => ({ authorization: `Bearer ${name}` });
  /** Sends the stored events. Returns them, except the events about changes of wallets. */
  const events = async (): Promise<ServicesEvent[]> => {
    const sent: ServicesEvent[] = [];
    const trail = (all: readonly ServicesEvent[]) => Promise.resolve(void sent.push(...all));
    while (await new OperatorEvents({ database, trail }).send());
    t.ok(
      sent.every((event) => Check(servicesEventSchema, event)),
      'the registry accepts each of them',
    );
    return sent.filter(({ action }) => !action.startsWith('wallet.'));
  };
  const stored = async (): Promise<number> =>
    (
      await database
        .selectFrom('operator_events')
        .select((it) => it.fn.countAll<number>().as('all'))
        .executeTakeFirstOrThrow()
    ).all;
  const endMinute = async (count: number): Promise<void> => {
    time.advance(60_000);
    await until(async () => (await stored()) >= count);
  };
  /** Counts a failed sign-in from the address with this number. */
  const fail = (index: number): void => {
    const source = `203.0.${index >> 8}.${index & 255}`;
    attempts.signInFailed({ id: `00000000-0000-4000-8000-${String(index).padStart(12, '0')}`, source }, 'invalid');
  };
  return { ...api, ask, attempts, by, endMinute, events, fail, stored, time };
}

onEachServices('refused attempts are one event per address and minute, with their number', async (t, services) => {
  const { ask, by, endMinute, events, stored } = fixture(t, services);
  const first = await ask('/wallets', by('nobody'), '198.51.100.7');
  t.equal(first.status, 401);
  for (let count = 0; count < 29; count += 1)
    t.equal((await ask('/wallets', by('nobody'), '198.51.100.7')).status, 401);
  t.equal((await ask('/wallets', { authorization: 'Basic abc' }, '198.51.100.7')).status, 401);
  t.equal((await ask('/nothing', by('nobody'), '2001:db8::8')).status, 401);
  t.equal((await ask('/livez', { 'x-merchant-id': 'merchant_a' }, '10.0.0.9')).status, 403);
  t.equal((await ask('/wallets', {}, '203.0.113.1')).status, 401, 'without any credential, as of a port scan');
  t.equal(await stored(), 0, 'no request adds an event before the minute has ended');
  await endMinute(3);
  const unproven = {
    ...{ action: 'sign-in.failed', actor: 'unknown', administratorId: null, proof: 'unproven', claimed: null },
    ...{ merchantId: '', reason: null, before: null },
  };
  const since = '2026-01-15T12:00:00.000Z';
  t.match(await events(), [
    {
      ...{ ...unproven, source: '198.51.100.7', id: first.id },
      after: { cause: 'invalid, malformed', refusals: 31, causes: { invalid: 30, malformed: 1 }, since },
    },
    { ...unproven, source: '2001:db8::8', after: { cause: 'invalid', refusals: 1 } },
    { ...unproven, source: '10.0.0.9', after: { cause: 'forwarded', refusals: 1 } },
  ]);
  await ask('/wallets', by('nobody'), '198.51.100.7');
  await endMinute(1);
  t.match(await events(), [{ source: '198.51.100.7', after: { refusals: 1, since: '2026-01-15T12:01:00.000Z' } }]);
});

onEachServices('a request without a permission or a reason is an event with its operator', async (t, services) => {
  const { app, by, endMinute, events, open, operate } = fixture(t, services);
  const walletId = await open('merchant_a');
  const order = { amount: 101, currency: 'NGN', environment: 'live', reference: 'one', reason: 'Deposit' };
  for (let count = 0; count < 3; count += 1)
    t.equal((await operate('POST', `/wallets/${walletId}/fund`, order, by('rita'))).status, 403);
  const large = await operate('POST', `/wallets/${walletId}/fund`, order, by('tess'));
  t.match(large, { status: 403, body: { data: { code: 'approval_required' } } });
  const read = { method: 'GET', url: '/wallets', headers: by('rea') } as const;
  t.match((await app.inject(read)).json(), { data: { code: 'reason_required' } });
  await endMinute(4);
  const event = { action: 'attempt.refused', claimed: null, source: '127.0.0.1', reason: null, before: null };
  const route = { method: 'POST', route: '/wallets/:id/fund' };
  t.match(await events(), [
    {
      ...{ ...event, actor: 'rita', administratorId: 'adm_rita', proof: 'token:tok_rita' },
      after: { ...route, needs: 'wallets:fund', refusals: 3, cause: 'permission_missing' },
    },
    {
      ...{ ...event, actor: 'tess', administratorId: 'adm_tess', proof: 'token:tok_tess' },
      after: { ...route, needs: 'approval', refusals: 1, cause: 'approval_required' },
    },
    {
      ...{ ...event, actor: 'rea', administratorId: 'adm_rea', proof: 'token:tok_rea' },
      after: { method: 'GET', route: '/wallets', needs: 'reason', refusals: 1, cause: 'reason_required' },
    },
  ]);
});

onEachServices('an event has the address that the registry signed for a person at its console', async (t, services) => {
  const { by, endMinute, events, open, operate } = fixture(t, services);
  const walletId = await open('merchant_a');
  const order = { amount: 1, currency: 'NGN', environment: 'live', reference: 'one', reason: 'Deposit' };
  for (const name of ['rob', 'una', 'rita']) {
    t.equal((await operate('GET', `/wallets/${walletId}`, undefined, by(name))).status, 200);
    t.equal((await operate('POST', `/wallets/${walletId}/fund`, order, by(name))).status, 403);
  }
  await endMinute(7);
  t.same((await events()).map(({ action, actor, source }) => `${action} ${actor} ${source ?? 'null'}`).toSorted(), [
    ...['attempt.refused rita 127.0.0.1', 'attempt.refused rob 203.0.113.9', 'attempt.refused una null'],
    ...['merchant.read rita 127.0.0.1', 'merchant.read rob 203.0.113.9', 'merchant.read una null'],
  ]);
});

onEachServices('the first read in an hour of a merchant by an operator is an event', async (t, services) => {
  const { ask, by, events, open, stored, time } = fixture(t, services);
  const [one, other] = [await open('merchant_a'), await open('merchant_b')];
  const reason = { 'x-reason': 'ticket%2012' };
  const first = await ask(`/wallets/${one}/entries`, { ...by('rita'), ...reason });
  for (const url of [`/wallets/${one}/entries`, `/wallets/${one}`, `/wallets/${other}`, `/wallets/${one}`])
    t.equal((await ask(url, by('rita'))).status, 200);
  for (const query of ['', '?merchantId=merchant_a', '?merchantId=merchant_c'])
    await ask(`/wallets${query}`, by('rita'));
  await ask(`/wallets/${one}`, by('tess'));
  await ask('/wallets/00000000-0000-4000-8000-000000000001', by('rita'));
  await ask('/accounts', by('rita'));
  await until(async () => (await stored()) >= 8);
  const read = (actor: string, merchantId: string, what: string) => ({
    ...{ action: 'merchant.read', actor, administratorId: `adm_${actor}`, proof: `token:tok_${actor}` },
    ...{ merchantId, source: '127.0.0.1', before: null, after: { what } },
  });
  const all = await events();
  t.match(
    all.find(({ id }) => id === first.id),
    { ...read('rita', 'merchant_a', 'entries'), reason: 'ticket 12' },
  );
  const brief = (event: ServicesEvent) =>
    `${event.actor} ${event.merchantId} ${'what' in event.after ? event.after.what : ''}`;
  t.same(all.map(brief).toSorted(), [
    'rita  wallets',
    'rita merchant_a entries',
    'rita merchant_a wallets',
    'rita merchant_b wallets',
    'rita merchant_c wallets',
    'tess merchant_a wallets',
  ]);
  time.advance(3_600_000);
  await ask(`/wallets/${one}`, by('rita'));
  await until(async () => (await stored()) >= 1);
  t.match((await events()).map(brief), ['rita merchant_a wallets']);
});

onEachServices('reads work while their event cannot be stored, and the next read stores it', async (t, services) => {
  const { ask, attempts, by, events, open } = fixture(t, services);
  const id = await open('merchant_a');
  await sql`alter table operator_events rename to hidden_events`.execute(services.database);
  t.equal((await ask(`/wallets/${id}`, by('rita'))).status, 200);
  await attempts.stop();
  await sql`alter table hidden_events rename to operator_events`.execute(services.database);
  t.equal((await ask(`/wallets/${id}`, by('rita'))).status, 200);
  await attempts.stop();
  t.match(await events(), [{ action: 'merchant.read', actor: 'rita' }]);
});

onEachServices('attempts of many addresses stay within their limit, and none is lost', async (t, services) => {
  const { endMinute, events, fail, stored, time } = fixture(t, services);
  for (let index = 0; index < 610; index += 1) fail(index);
  await endMinute(600);
  t.equal(await stored(), 600);
  const all = await events();
  t.match(all[0]?.after, { refusals: 1, omittedBefore: 10 });
  t.equal(all.length, 600);
  fail(700);
  time.advance(60_000);
  await until(async () => (await stored()) === 1);
  t.notOk('omittedBefore' in ((await events())[0]?.after ?? {}));
});

onEachServices('the addresses of an IPv6 /64 count as one, so they hide no other attempt', async (t, services) => {
  const { attempts, endMinute, events, fail, stored } = fixture(t, services);
  const author = { actor: 'rita', administratorId: 'adm_rita', proof: 'token:tok_rita', claimed: null, reason: null };
  const lacking = { method: 'POST', route: '/wallets', needs: 'wallets:write' };
  for (let index = 1; index <= 610; index += 1) {
    const idOf = (kind: string): string => `00000000-0000-4000-${kind}-${String(index).padStart(12, '0')}`;
    attempts.signInFailed({ id: idOf('9000'), source: `2001:db8:0:7::${index.toString(16)}` }, 'invalid');
    attempts.refused({ ...author, id: idOf('a000'), source: `2001:db8:0:8::${index.toString(16)}` }, lacking);
  }
  fail(1);
  await endMinute(3);
  t.equal(await stored(), 3);
  t.match(await events(), [
    { action: 'sign-in.failed', source: '2001:db8:0:7::1', after: { refusals: 610 } },
    { action: 'attempt.refused', actor: 'rita', source: '2001:db8:0:8::1', after: { refusals: 610 } },
    { action: 'sign-in.failed', source: '203.0.0.1', after: { refusals: 1 } },
  ]);
});

t.test('attempts that are omitted while events are being stored are not lost', async (t) => {
  const services = await servicesFixture(t);
  const { endMinute, events, fail, time } = fixture(t, services);
  for (let index = 0; index < 600; index += 1) fail(index);
  // On SQLite an open transaction holds up all other writes.
  await services.database.transaction().execute(async () => {
    time.advance(60_000);
    await new Promise(setImmediate);
    for (let index = 1000; index < 1610; index += 1) fail(index);
  });
  await endMinute(1200);
  const all = await events();
  t.equal(all.length, 1200);
  t.same(
    all.flatMap(({ after }) => ('omittedBefore' in after ? [after.omittedBefore] : [])),
    [10],
  );
});

onEachServices(
  'refused attempts are only counted while many events wait or the database is away',
  async (t, services) => {
    const { database } = services;
    const state = { waiting: 10_000, attemptsToStore: 0 };
    const { ask, attempts, by, events, stored, time } = fixture(t, services, () => {
      state.attemptsToStore += 1;
      return state.waiting;
    });
    /**
     * Causes two refusals. Resolves when the services begin to store them, which is after the previous attempt to store
     * has ended.
     */
    const refuseTwo = async (): Promise<void> => {
      const before = state.attemptsToStore;
      await ask('/wallets', by('nobody'), '198.51.100.7');
      await ask('/wallets', by('nobody'), '198.51.100.8');
      time.advance(60_000);
      await until(() => state.attemptsToStore > before);
    };
    await refuseTwo();
    t.equal(await stored(), 0);
    state.waiting = 0;
    await sql`alter table operator_events rename to hidden_events`.execute(database);
    await refuseTwo();
    state.waiting = 10_000;
    await refuseTwo();
    state.waiting = 0;
    await sql`alter table hidden_events rename to operator_events`.execute(database);
    await ask('/wallets', by('nobody'), '198.51.100.9');
    await attempts.stop();
    t.match(await events(), [{ source: '198.51.100.9', after: { refusals: 1, omittedBefore: 6 } }]);
    await ask('/wallets', by('nobody'), '198.51.100.9');
    await attempts.stop();
    t.same(await events(), [], 'nothing is counted after the end');
  },
);

onEachServices('an oversized header section is an event, although no hook sees the request', async (t, services) => {
  const { app, endMinute, events } = fixture(t, services);
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  const response = await fetch(`${url}/wallets`, { headers: { authorization: `Bearer ${'a'.repeat(20_000)}` } });
  t.equal(response.status, 431);
  await endMinute(1);
  t.match(await events(), [
    { action: 'sign-in.failed', source: '127.0.0.1', after: { cause: 'headers_too_large', refusals: 1 } },
  ]);
});
