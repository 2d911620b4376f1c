import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { Agent, request } from 'undici';
import { openServicesDatabase, type ServicesDatabase } from '../../src/services/services-database.js';
import { createPostgresDatabase, postgresAlone } from '../database/each-database.js';
import { liveKey, startTestGateway } from '../edge/harness.js';
import { addWallet, bankPayout, patient } from '../services/services-fixture.js';
import { startKillableServices } from './killable-services.js';

/** Number of payouts per race; `npm run soak:payouts` sets it to 10,000. */
const count = Number(process.env.PAYOUTS ?? 240);
const amount = 70;
const merchant = { merchantId: 'm_1', environment: 'live' } as const;
const retryMilliseconds = 50;
const longestMilliseconds = 1_500_000;
t.setTimeout(longestMilliseconds);

/** Returns the balance of a wallet, and sums and checks of its ledger. While it runs, no payout may be in progress. */
async function booksOf(database: ServicesDatabase, walletId: string) {
  const { balance } = await database
    .selectFrom('wallets')
    .select('balance')
    .where('id', '=', walletId)
    .executeTakeFirstOrThrow();
  const movements = await database
    .selectFrom('transactions')
    .select(['type', 'amount', 'balance_after', 'payout_id'])
    .where('wallet_id', '=', walletId)
    .orderBy('id')
    .execute();
  let sum = 0;
  const isChain = movements.every(
    (one) => (sum += one.type === 'credit' ? one.amount : -one.amount) === one.balance_after,
  );
  const payouts = await database
    .selectFrom('payouts')
    .select('id')
    .where('wallet_id', '=', walletId)
    .orderBy('sequence')
    .execute();
  const debited = movements.flatMap(({ payout_id }) => (payout_id === null ? [] : [payout_id]));
  return {
    balance,
    sum,
    isChain,
    least: Math.min(...movements.map((one) => one.balance_after)),
    payouts: payouts.map(({ id }) => id),
    isDebitedOnceEach: debited.length === payouts.length && new Set(debited).size === payouts.length,
  };
}

t.test(
  'concurrent payouts from one wallet through the gateway on PostgreSQL spend exactly its money',
  postgresAlone,
  async (t) => {
    const databaseUrl = await createPostgresDatabase(t);
    const services = await startKillableServices(t, databaseUrl);
    const database = await openServicesDatabase({ url: databaseUrl, pool: patient });
    t.teardown(() => database.destroy());
    const upstream = { url: services.url, timeoutSeconds: 600, maxInFlight: 1024 };
    const upstreams = { transactions: upstream, payouts: upstream, customers: upstream };
    // On a busy machine so many simultaneous TLS handshakes can take longer than ten seconds. Ten seconds is the
    // default timeout of the gateway and of undici.
    const limits = { headersTimeoutSeconds: 600, requestTimeoutSeconds: 600 };
    const gateway = await startTestGateway(t, { config: { upstreams, limits } });
    const connect = { ca: gateway.ca, timeout: 0 };
    const agent = new Agent({ connect, connections: 128, headersTimeout: 0, bodyTimeout: 0 });
    t.teardown(() => agent.destroy());

    async function pay(walletId: string, key: string | null): Promise<{ status: number; body: string }> {
      const { statusCode, body } = await request(`https://127.0.0.1:${gateway.https}/v1/dev/payouts`, {
        method: 'POST',
        dispatcher: agent,
        headers: {
          ...{ 'x-api-key': liveKey, 'content-type': 'application/json' },
          ...(key === null ? {} : { 'idempotency-key': key }),
        },
        body: JSON.stringify(bankPayout(walletId, { amount })),
      });
      return { status: statusCode, body: await body.text() };
    }

    /** Retries with the same Idempotency-Key until there is a final response, as a merchant does. */
    async function payUntilFinal(walletId: string, key: string): Promise<{ status: number; body: string }> {
      for (;;) {
        const response = await pay(walletId, key).catch(() => null);
        if (response !== null && response.status !== 409 && response.status < 500) return response;
        await wait(retryMilliseconds);
      }
    }

    const funded = Math.floor(count / 2);
    const emptied = { balance: 0, sum: 0, isChain: true, least: 0, isDebitedOnceEach: true };
    const rate = (name: string, since: number, responses: number) => {
      const seconds = (Date.now() - since) / 1000;
      t.comment(
        `${name}: ${responses} responses in ${seconds.toFixed(1)} s, ${Math.round(responses / seconds)} per second`,
      );
    };

    await t.test(`${count} concurrent payouts with money for ${funded}`, async (t) => {
      const walletId = await addWallet(database, merchant, { balance: funded * amount });
      const since = Date.now();
      const responses = await Promise.all(Array.from({ length: count }, () => pay(walletId, null)));
      rate('without keys', since, count);
      t.equal(responses.filter(({ status }) => status === 201).length, funded);
      const refused = responses.filter(({ status }) => status === 422);
      t.equal(refused.length, count - funded);
      t.ok(refused.every(({ body }) => body.includes('"message":"Insufficient wallet balance"')));
      const { payouts, ...books } = await booksOf(database, walletId);
      t.same(books, emptied);
      t.equal(payouts.length, funded);
    });

    await t.test(
      'payouts with Idempotency-Keys, a third sent twice, survive a kill and restart of the services',
      async (t) => {
        const walletId = await addWallet(database, merchant, { balance: funded * amount });
        const since = Date.now();
        let completed = 0;
        const send = async (index: number) => {
          const response = await payUntilFinal(walletId, `payout-${index}`);
          completed += 1;
          return response;
        };
        const first = Array.from({ length: count }, (_, index) => send(index));
        const again = Array.from({ length: Math.floor(count / 3) }, (_, index) => send(index));
        while (completed < count / 4) await wait(1);
        await services.kill();
        const completedBefore = completed;
        await services.start();
        const responses = await Promise.all(first);
        const repeated = await Promise.all(again);
        rate('with keys, a third twice, one kill', since, responses.length + repeated.length);
        t.ok(completedBefore < responses.length, 'the services were killed before the last response');

        const made = responses.filter(({ status }) => status === 201);
        t.equal(made.length, funded);
        t.equal(responses.filter(({ status }) => status === 422).length, count - funded);
        t.same(repeated, responses.slice(0, repeated.length), 'each key has exactly one response');
        const { payouts, ...books } = await booksOf(database, walletId);
        t.same(books, emptied);
        const reported = made.map(({ body }) => (JSON.parse(body) as { data: { id: string } }).data.id);
        t.same(reported.toSorted(), payouts.toSorted(), 'no payout is lost or doubled');
      },
    );

    await t.test('payouts from before and after the kill reach a final state', async (t) => {
      const open = () =>
        database
          .selectFrom('payouts')
          .select((it) => it.fn.countAll<number>().as('count'))
          .where('status', 'in', ['pending', 'processing'])
          .executeTakeFirstOrThrow();
      while ((await open()).count > 0) await wait(retryMilliseconds);
      const ended = await database.selectFrom('payouts').select('status').distinct().execute();
      t.same(ended, [{ status: 'successful' }]);
    });
  },
);
