import { sql } from 'kysely';
import { servicesEventSchema, type ServicesEvent } from '../../src/rest/trail/services-events.js';
import { OperatorEvents, type Trail } from '../../src/services/operators/operator-events.js';
import { Check } from '../../src/typebox/typebox.js';
import { operatorsOf } from './operators-fixture.js';
import { balanceOf, onEachServices, type ServicesUnderTest } from './services-fixture.js';

const tess = {
  ...{
    name: 'tess',
    administratorId: 'adm_1',
    proof: 'token:tok_1',
    reasonFor: [],
    fundingLimits: null,
    approved: null,
    sources: null,
  },
  permissions: ['wallets:read', 'wallets:write', 'wallets:fund'] as const,
};

/** Returns the number of events that wait and the time of the oldest, without sending any. */
async function waitingIn(database: ServicesUnderTest['database']) {
  const events = new OperatorEvents({ database, trail: null });
  await events.send();
  return events.waiting ?? { count: NaN, oldestAt: NaN };
}

/** The operators' API with an administrator, and the events that a registry would get. */
function fixture(t: Parameters<typeof operatorsOf>[0], services: ServicesUnderTest) {
  const { database } = services;
  const administrators = (token: string) => Promise.resolve(token === 'tess' ? tess : null);
  const api = operatorsOf(t, services, { administrators, storesEvents: true });
  const sent: ServicesEvent[] = [];
  const trail = (events: readonly ServicesEvent[]) => Promise.resolve(void sent.push(...events));
  return {
    ...api,
    sent,
    trail,
    send: () => new OperatorEvents({ database, trail }).send(),
    by: { authorization: 'Bearer tess' },
  };
}

onEachServices('each change by an operator is an event, once', async (t, services) => {
  const { database } = services;
  const { operate, send, sent, by } = fixture(t, services);
  const body = { merchantId: 'merchant_a', environment: 'live', currency: 'NGN' };
  const created = await operate('POST', '/wallets', body, { ...by, 'x-reason': 'new%20shop' });
  const walletId = (created.body.data as { id: string }).id;
  await operate('POST', '/wallets', body, by); // exists already
  const move = (kind: string, reference: string, amount: number, headers: Record<string, string> = by) =>
    operate(
      'POST',
      `/wallets/${walletId}/${kind}`,
      { amount, currency: 'NGN', environment: 'live', reference, reason: 'Deposit' },
      headers,
    );
  t.equal((await move('fund', 'one', 700)).status, 201);
  t.equal((await move('fund', 'one', 700)).status, 200, 'a repeat');
  t.equal((await move('fund', 'one', 701)).status, 409);
  t.equal((await move('withdraw', 'two', 9000)).status, 422);
  t.equal((await move('withdraw', 'three', 200)).status, 201);
  await Promise.all(Array.from({ length: 5 }, () => move('fund', 'four', 1, { 'x-actor': 'bob' })));
  t.equal((await waitingIn(database)).count, 4);
  t.type((await waitingIn(database)).oldestAt, 'number');
  t.equal(await send(), false);
  t.same(await waitingIn(database), { count: 0, oldestAt: null });
  t.equal(await send(), false);
  const wallet = { walletId, environment: 'live', currency: 'NGN' };
  const author = { actor: 'tess', administratorId: 'adm_1', proof: 'token:tok_1', claimed: null, source: '127.0.0.1' };
  t.match(sent, [
    { ...author, action: 'wallet.created', reason: 'new shop', before: null, after: { ...wallet, balance: 0 } },
    {
      ...{ ...author, action: 'wallet.funded', merchantId: 'merchant_a', reason: 'Deposit', before: { balance: 0 } },
      after: { ...wallet, balance: 700, amount: 700, reference: 'one' },
    },
    {
      ...{ ...author, action: 'wallet.withdrawn', reason: 'Deposit', before: { balance: 700 } },
      after: { ...wallet, balance: 500, amount: 200, reference: 'three' },
    },
    {
      ...{ actor: 'bootstrap', administratorId: null, proof: 'bootstrap', claimed: 'bob', action: 'wallet.funded' },
      after: { balance: 501, reference: 'four' },
    },
  ]);
  t.equal(sent.length, 4);
  t.equal(new Set(sent.map(({ id }) => id)).size, 4);
  t.ok(
    sent.every((event) => Check(servicesEventSchema, event)),
    'the registry accepts each of them',
  );
});

onEachServices('an event has the id of its request', async (t, services) => {
  const { app, send, sent, by } = fixture(t, services);
  const response = await app.inject({
    ...{ method: 'POST', url: '/wallets', headers: { ...by, 'content-type': 'application/json' } },
    payload: JSON.stringify({ merchantId: 'merchant_a', environment: 'test', currency: 'KES' }),
  });
  await send();
  t.equal(sent[0]?.id, response.headers['x-request-id']);
});

onEachServices(
  'a registry that is unavailable delays events and loses none; money does not wait',
  async (t, services) => {
    const { database } = services;
    const { open, move, sent, trail } = fixture(t, services);
    const walletId = await open('merchant_a');
    const away: Trail = () => Promise.reject(new Error('the registry is away'));
    const events = (trail: Trail) => new OperatorEvents({ database, trail });
    await t.rejects(events(away).send(), { message: 'the registry is away' });
    for (let count = 0; count < 120; count += 1) t.equal((await move('fund', walletId, 1)).status, 201);
    t.equal(await balanceOf(database, walletId), 120);
    await t.rejects(events(away).send());
    t.equal((await waitingIn(database)).count, 121);
    const lost = async (events: readonly ServicesEvent[]) => {
      await trail(events);
      throw new Error('the response was lost');
    };
    await t.rejects(events(lost).send());
    t.equal((await waitingIn(database)).count, 121, 'they are sent again');
    t.equal(sent.length, 100);
    sent.length = 0;
    t.equal(await events(trail).send(), true, 'more are waiting');
    t.equal(await events(trail).send(), false);
    t.equal(sent.length, 121);
    t.same(
      sent.slice(1).map(({ after }) => ('balance' in after ? after.balance : null)),
      Array.from({ length: 120 }, (_, index) => index + 1),
      'in the order of the changes',
    );
  },
);

onEachServices('a change and its event are stored together or not at all', async (t, services) => {
  const { database } = services;
  const { open, move } = fixture(t, services);
  const walletId = await open('merchant_a');
  await sql`alter table operator_events rename to hidden_events`.execute(database);
  t.equal((await move('fund', walletId, 5)).status, 500);
  t.equal(await balanceOf(database, walletId), 0, 'no money moved');
  await sql`alter table hidden_events rename to operator_events`.execute(database);
  t.equal((await move('fund', walletId, 5)).status, 201);
  t.equal((await waitingIn(database)).count, 2);
});

onEachServices('without a registry for the events none are stored', async (t, services) => {
  const { open, move } = operatorsOf(t, services);
  const walletId = await open('merchant_a');
  t.equal((await move('fund', walletId, 5)).status, 201);
  t.equal((await waitingIn(services.database)).count, 0);
});
