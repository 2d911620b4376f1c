import type { InjectOptions } from 'fastify';
import { idempotencyKeyParameter } from '../../src/services/idempotency/idempotency-key.js';
import { moveMoney } from '../../src/services/ledger/move-money.js';
import {
  addWallet,
  balanceOf,
  bankPayout,
  merchantA,
  merchantB,
  onEachServices,
  sandboxOfA,
} from './services-fixture.js';
import { emptyList } from '../empty-list.js';

const methods: NonNullable<InjectOptions['method']>[] = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'];
const unknownIds: Readonly<Record<string, string>> = {
  payouts: '00000000-0000-4000-8000-000000000000',
  wallets: '00000000-0000-4000-8000-000000000000',
  customers: '00000000-0000-4000-8000-000000000000',
  transactions: '999999999',
};

onEachServices(
  'another merchant or the other environment gets 404 for each id, on each route and method',
  async (t, { app, call, database, openApi }) => {
    const walletId = await addWallet(database, merchantA, { balance: 1000, isDefault: true });
    const idIn = ({ body }: { body: { data: unknown } }) => String((body.data as { id: unknown }).id);
    const payout = await call(merchantA, 'POST', '/dev/payouts', { body: bankPayout(walletId) });
    const person = { email: 'ada@example.com', firstName: 'Ada', lastName: 'Obi' };
    const customer = await call(merchantA, 'POST', '/dev/customers', { body: person });
    const [transaction] = (await call(merchantA, 'GET', '/transactions')).body.data as { id: number }[];
    const ids: Readonly<Record<string, string>> = {
      payouts: idIn(payout),
      wallets: walletId,
      customers: idIn(customer),
      transactions: String(transaction?.id),
    };
    const paths = Object.keys(openApi().paths).filter((path) => path.includes('{id}'));
    t.same(paths.toSorted(), [
      '/dev/customers/{id}',
      '/dev/payouts/{id}',
      '/dev/transactions/{id}',
      '/dev/wallets/{id}',
      '/transactions/{id}',
    ]);
    const before = JSON.stringify(await everything());
    for (const path of paths) {
      const kind = path.split('/').at(-2) ?? '';
      const urlOf = (id = '') => path.replace('{id}', id);
      t.equal((await call(merchantA, 'GET', urlOf(ids[kind]))).status, 200, `${path} is found by its owner`);
      for (const stranger of [merchantB, sandboxOfA]) {
        for (const method of methods) {
          const details = method === 'PATCH' ? { body: { firstName: 'Eve' } } : {};
          const url = urlOf(ids[kind]);
          if (method === 'HEAD') {
            const headers = { 'x-merchant-id': stranger.merchantId, 'x-merchant-environment': stranger.environment };
            t.equal((await app.inject({ method, url, headers })).statusCode, 404, `HEAD ${url}`);
            continue;
          }
          const response = await call(stranger, method, url, details);
          const taken = Object.keys(openApi().paths[path] ?? {});
          t.equal(response.status, taken.includes(method.toLowerCase()) ? 404 : 405, `${method} ${path}`);
          t.same(
            response,
            await call(stranger, method, urlOf(unknownIds[kind]), details),
            'the response to an unknown id is the same',
          );
        }
      }
    }
    for (const stranger of [merchantB, sandboxOfA]) {
      const headers = { [idempotencyKeyParameter.name]: 'k' };
      for (const details of [{}, { headers }]) {
        const stolen = await call(stranger, 'POST', '/dev/payouts', { ...details, body: bankPayout(walletId) });
        t.match(stolen, {
          status: 404,
          body: { message: 'Wallet not found', data: { code: 'not_found', errors: emptyList } },
        });
      }
      for (const kind of ['payouts', 'wallets', 'customers', 'transactions']) {
        const list = await call(stranger, 'GET', `/dev/${kind}?up_to=${ids[kind] ?? ''}`);
        t.equal(list.status, 404, `${kind} up to the id of another merchant`);
      }
      for (const list of ['/dev/payouts', '/transactions', '/dev/transactions']) {
        const response = await call(stranger, 'GET', `${list}?walletId=${walletId}`);
        t.match(
          response,
          { status: 404, body: { message: 'Wallet not found', data: { code: 'not_found', errors: emptyList } } },
          list,
        );
        t.same(
          response,
          await call(stranger, 'GET', `${list}?walletId=${unknownIds.wallets ?? ''}`),
          'the response to an unknown wallet is the same',
        );
      }
      for (const list of [
        '/transactions',
        '/dev/transactions',
        '/dev/payouts',
        '/dev/wallets',
        '/dev/customers?search=ada',
      ]) {
        t.match(
          await call(stranger, 'GET', list),
          { status: 200, body: { data: emptyList, meta: { total_records: 0 } } },
          list,
        );
      }
    }
    t.equal(JSON.stringify(await everything()), before, 'no record has changed');
    t.equal(await balanceOf(database, walletId), 900);

    async function everything() {
      return [
        await database.selectFrom('wallets').selectAll().execute(),
        await database.selectFrom('payouts').selectAll().execute(),
        await database.selectFrom('transactions').selectAll().orderBy('id').execute(),
        await database.selectFrom('customers').selectAll().execute(),
      ];
    }
  },
);

onEachServices('a movement of money cannot name a wallet of another owner', async (t, { database }) => {
  const walletId = await addWallet(database, merchantA, { balance: 1000 });
  for (const stranger of [merchantB, sandboxOfA]) {
    const debit = { walletId, type: 'debit', amount: 1, currency: 'NGN', counterAccount: 'payouts' } as const;
    const moved = await database.transaction().execute((transaction) =>
      moveMoney(transaction, stranger, debit, () => {
        throw new Error('the wallet was debited');
      }),
    );
    t.equal(moved, null);
  }
  t.equal(await balanceOf(database, walletId), 1000);
});
