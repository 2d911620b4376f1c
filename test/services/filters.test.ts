import type { Payout } from '../../src/services/payouts/schema.js';
import { addWallet, bankPayout, merchantA, onEachServices, type ServicesUnderTest } from './services-fixture.js';
import { emptyList } from '../empty-list.js';

const delay = 60_000;

async function idsOf({ call }: ServicesUnderTest, list: string): Promise<unknown[]> {
  const { status, body } = await call(merchantA, 'GET', list);
  if (status !== 200) throw new Error(`${list}: ${body.message}`);
  const ids = (body.data as { id: unknown }[]).map(({ id }) => id);
  if (body.meta?.total_records !== ids.length) throw new Error(`${list}: the total is of another list`);
  return ids;
}

onEachServices('payouts and transactions are filtered by status, type, wallet and date', async (t, services) => {
  const { call, database, pass } = services;
  const walletId = await addWallet(database, merchantA, { balance: 1000 });
  const otherWallet = await addWallet(database, merchantA, { balance: 1000 });
  const pay = async (wallet: string, account = '0123456789') => {
    const body = bankPayout(wallet, { destinationAccountNumber: account });
    return (await call(merchantA, 'POST', '/dev/payouts', { body })).body.data as Payout;
  };
  const [good, bad] = [await pay(walletId), await pay(walletId, '0000000000')];
  await pass(delay);
  await pass(delay);
  const day = 86_400_000;
  await pass(day);
  const late = await pay(otherWallet);

  t.same(await idsOf(services, '/dev/payouts?status=successful'), [good.id]);
  t.same(await idsOf(services, '/dev/payouts?status=failed'), [bad.id]);
  t.same(await idsOf(services, '/dev/payouts?status=pending'), [late.id]);
  t.same(await idsOf(services, '/dev/payouts?status=processing'), []);
  t.same(await idsOf(services, `/dev/payouts?walletId=${walletId.toUpperCase()}`), [bad.id, good.id]);
  t.same(await idsOf(services, `/dev/payouts?walletId=${walletId}&status=failed`), [bad.id]);
  t.same(await idsOf(services, '/dev/payouts?from=2026-01-16'), [late.id]);
  t.same(
    await idsOf(services, '/dev/payouts?to=2026-01-15'),
    [bad.id, good.id],
    'a date as `to` includes the whole day',
  );
  t.same(
    await idsOf(services, `/dev/payouts?from=${good.createdAt}&to=${good.createdAt}`),
    [good.id],
    'both limits are inclusive',
  );
  const sameMoment = new Date(Date.parse(good.createdAt) + 3_600_000).toISOString().replace('Z', '%2B01:00');
  t.same(await idsOf(services, `/dev/payouts?to=${sameMoment}`), [good.id], 'a time in another time zone');
  t.same(await idsOf(services, '/dev/payouts?from=2026-02-01&to=2026-01-01'), []);

  const amounts = async (query: string) =>
    ((await call(merchantA, 'GET', `/transactions?${query}`)).body.data as { payoutId: string | null }[]).map(
      ({ payoutId }) => payoutId,
    );
  t.same(await amounts('type=credit&from=2026-01-15T12:00:00.001Z'), [bad.id], 'only the refund');
  t.same(await amounts('type=debit'), [late.id, bad.id, good.id]);
  t.same(await amounts('status=pending'), [late.id]);
  t.same(await amounts('status=reversed'), [bad.id]);
  t.same(await amounts('type=debit&status=successful'), [good.id]);
  t.same(await amounts('from=2026-01-16&to=2026-01-16'), [late.id]);
  t.same(await amounts(`type=debit&walletId=${walletId.toUpperCase()}`), [bad.id, good.id]);
  t.same(await amounts(`walletId=${otherWallet}`), [late.id, null]);

  const empty = await addWallet(database, merchantA);
  const unknownId = '00000000-0000-4000-8000-000000000000';
  for (const list of ['/dev/payouts', '/transactions', '/dev/transactions']) {
    t.same(await idsOf(services, `${list}?walletId=${empty}`), [], 'a wallet without records');
    const response = await call(merchantA, 'GET', `${list}?walletId=${unknownId}`);
    t.match(
      response,
      { status: 404, body: { message: 'Wallet not found', data: { code: 'not_found', errors: emptyList } } },
      `${list}: an unknown wallet`,
    );
    t.equal(
      (await call(merchantA, 'GET', `${list}?walletId=${unknownId}&from=x`)).status,
      422,
      'the format of parameters is checked before the wallet',
    );
  }

  const cases: [query: string, message: RegExp][] = [
    ['status=done', /^status must be one of pending, processing, successful, failed$/],
    ['status=', /^status must be/],
    ['status=failed&status=pending', /^status must be/],
    ['walletId=x', /^walletId must be a UUID$/],
    ['from=yesterday', /^from must be a date, such as/],
    ['from=2026-02-30', /^from must be a date that exists$/],
    ['to=2026-01-15T25:00:00Z', /^to must be a date that exists$/],
    ['to=2026-01-15T12:00:00', /^to must be a date, such as/],
    ['up_to=x', /^up_to must be a UUID$/],
    ['type=debit', /^type is not a known query parameter$/],
  ];
  for (const [query, message] of cases) {
    t.match(await call(merchantA, 'GET', `/dev/payouts?${query}`), { status: 422, body: { message } }, query);
  }
  const { data } = (await call(merchantA, 'GET', '/transactions?status=done&from=2026-02-30&to=2026-01-15T25:00:00Z'))
    .body;
  t.same(
    (data as { errors: { path: string }[] }).errors.map(({ path }) => path),
    ['status', 'from', 'to'],
    'dates that do not exist are reported with all other problems',
  );
  t.match(await call(merchantA, 'GET', '/transactions?type=fee'), {
    status: 422,
    body: { message: 'type must be one of credit, debit' },
  });
});

onEachServices('pages with up_to stay the same while records are added', async (t, services) => {
  const { call, database } = services;
  const walletId = await addWallet(database, merchantA, { balance: 1000 });
  const add = async () => {
    await call(merchantA, 'POST', '/dev/payouts', { body: bankPayout(walletId, { amount: 1 }) });
    const email = `ada${added}@example.com`;
    await call(merchantA, 'POST', '/dev/customers', { body: { email, firstName: 'Ada', lastName: 'Obi' } });
    await addWallet(database, merchantA);
    added += 1;
  };
  let added = 0;
  for (let index = 0; index < 7; index += 1) await add();
  for (const list of ['/transactions', '/dev/transactions', '/dev/payouts', '/dev/customers', '/dev/wallets']) {
    const whole = await idsOf(services, `${list}?per_page=100`);
    const seen: unknown[] = [];
    const totals = new Set<number | undefined>();
    for (let page = 1; page <= Math.ceil(whole.length / 3); page += 1) {
      const { body } = await call(merchantA, 'GET', `${list}?up_to=${String(whole[0])}&per_page=3&page=${page}`);
      seen.push(...(body.data as { id: unknown }[]).map(({ id }) => id));
      totals.add(body.meta?.total_records);
      await add();
    }
    t.same(seen, whole, list);
    t.same([...totals], [whole.length], list);
  }
});

onEachServices(
  'customers are found by a substring of their name, email or phone, ignoring case',
  async (t, services) => {
    const { call } = services;
    const people = [
      { email: 'zoe@example.com', firstName: 'Zoë', lastName: 'Ọlá', phone: '+2348000000001' },
      { email: 'under_score@example.com', firstName: '100%', lastName: 'Back\\slash' },
      { email: 'ada@example.org', firstName: 'Ada', lastName: 'Obi' },
    ];
    const ids: unknown[] = [];
    for (const body of people)
      ids.push(((await call(merchantA, 'POST', '/dev/customers', { body })).body.data as { id: string }).id);
    const [zoe, odd, ada] = ids;
    const cases: [search: string, found: unknown[]][] = [
      ['ZOË', [zoe]],
      ['zoe\u0308', [zoe]],
      ['ọLÁ', [zoe]],
      ['Zoë Ọlá', [zoe]],
      ['234800', [zoe]],
      ['EXAMPLE.COM', [odd, zoe]],
      ['example', [ada, odd, zoe]],
      ['%', [odd]],
      ['r_s', [odd]],
      ['_', [odd]],
      ['k\\s', [odd]],
      ["'", []],
      ['Ọlázoe', []],
    ];
    for (const [search, found] of cases) {
      t.same(await idsOf(services, `/dev/customers?search=${encodeURIComponent(search)}`), found, search);
    }
    await call(merchantA, 'PATCH', `/dev/customers/${String(ada)}`, { body: { lastName: 'Eze', phone: '5551234' } });
    t.same(await idsOf(services, '/dev/customers?search=obi'), []);
    t.same(await idsOf(services, '/dev/customers?search=ada%20eze'), [ada]);
    t.same(await idsOf(services, '/dev/customers?search=555'), [ada]);
    for (const search of ['', '%20', 'x'.repeat(101), '%00']) {
      t.equal((await call(merchantA, 'GET', `/dev/customers?search=${search}`)).status, 422, search);
    }
  },
);

onEachServices('the description explains each query parameter of a list', (t, { openApi }) => {
  interface Described {
    readonly get?: {
      readonly parameters: readonly { name: string; in: string; description?: string; schema: object }[];
    };
  }
  const queries = Object.values(openApi().paths as Readonly<Record<string, Described>>).flatMap(({ get }) =>
    (get?.parameters ?? []).filter((one) => one.in === 'query'),
  );
  for (const { name, description, schema } of queries) {
    t.ok('enum' in schema || (description ?? '') !== '', `${name} has a description or self-explanatory values`);
    t.notOk('purpose' in schema, 'no keyword that JSON Schema does not define');
  }
  t.ok(queries.some(({ name }) => name === 'walletId'));
  return Promise.resolve();
});
