import t from 'tap';
import { readReport } from '../../src/adapters/redis/gateway-records.js';
import { InactiveMemory, inactiveAmong } from '../../src/adapters/redis/gateway/inactive-memory.js';
import { noSeals } from '../../src/adapters/redis/seal.js';
import { RecordNames } from '../../src/adapters/redis/record-names.js';
import { compileKeyRecord, compileMerchantRecord } from '../../src/gateway/records.js';

const keyName = `key:${'a'.repeat(64)}`;
const known = { generation: 'r_1', revision: 20 };

interface Entry {
  readonly name: string;
  readonly value: object;
}

function setUp() {
  const written = new Map<string, { readonly text: string; readonly lifetimeMilliseconds: number }>();
  const state = { held: [] as Entry[], fails: false };
  const memory = new InactiveMemory({
    link: {
      write: ({ name, ...rest }) => {
        if (state.fails) return Promise.reject(new Error('Redis is full'));
        written.set(name, rest);
        return Promise.resolve();
      },
    },
    names: new RecordNames('mg:'),
    seals: noSeals,
    instanceId: 'g',
    held: () => state.held,
  });
  const names = () =>
    [...written.values()].flatMap(({ text }) => readReport(text)?.entries.map(({ name }) => name) ?? ['unreadable']);
  return { memory, names, state, written };
}

t.test('records cached as inactive are reported once per connection', async (t) => {
  const { memory, names, state, written } = setUp();
  await memory.report(known, 1);
  t.equal(written.size, 0, 'nothing is cached');
  state.held = [{ name: keyName, value: { revision: 3 } }];
  await memory.report(known, 2);
  t.same([...written.keys()], ['mg:inactive:g:0']);
  t.match(readReport(written.get('mg:inactive:g:0')?.text ?? null), { instanceId: 'g', ...known });
  t.equal(written.get('mg:inactive:g:0')?.lifetimeMilliseconds, 86_400_000);
  written.clear();
  await memory.report(known, 2);
  t.equal(written.size, 0);
  await memory.report(known, 3);
  t.same(names(), [keyName], 'another server may have lost it again');
});

t.test('dropped records are remembered until the gateway is enrolled again', async (t) => {
  const { memory, names, state, written } = setUp();
  state.held = [{ name: keyName, value: {} }];
  memory.remember(known);
  state.held = [{ name: 'merchant:m', value: {} }];
  await memory.report(known, 1);
  t.same(names(), [keyName, 'merchant:m']);
  memory.clear();
  written.clear();
  state.held = [];
  await memory.report(known, 2);
  t.equal(written.size, 0);
  memory.remember(null);
  await memory.report(null, 3);
  t.equal(written.size, 0, 'a gateway that has never trusted a store remembers nothing');
});

t.test('a report that cannot be written is written by the next heartbeat', async (t) => {
  const { memory, names, state } = setUp();
  state.held = [{ name: keyName, value: {} }];
  state.fails = true;
  await memory.report(known, 1);
  t.same(names(), []);
  state.fails = false;
  await memory.report(known, 1);
  t.same(names(), [keyName]);
});

t.test('a long report is split', async (t) => {
  const { memory, names, state, written } = setUp();
  state.held = Array.from({ length: 1_001 }, (_, index) => ({
    name: `key:${String(index).padStart(64, '0')}`,
    value: {},
  }));
  await memory.report(known, 1);
  t.same([...written.keys()], ['mg:inactive:g:0', 'mg:inactive:g:1', 'mg:inactive:g:2']);
  t.equal(names().length, 1_001);
});

t.test('only inactive records and those with an expiry are remembered', (t) => {
  const key = { keyId: 'k', merchantId: 'm', environment: 'live', permissions: ['*'], revision: 5 };
  const keys = [
    ['good', compileKeyRecord({ ...key, status: 'ACTIVE', expiresAt: null })],
    ['revoked', compileKeyRecord({ ...key, status: 'REVOKED', expiresAt: null })],
    ['ends', compileKeyRecord({ ...key, status: 'ACTIVE', expiresAt: '2026-01-01T00:00:00.000Z' })],
  ] as const;
  const merchant = { name: 'x', ipAllowlist: ['8.8.8.8'], originAllowlist: null, revision: 6 };
  const merchantOf = (merchantId: string, status: string, goLive: boolean) =>
    [merchantId, compileMerchantRecord({ ...merchant, merchantId, status, goLive })] as const;
  const merchants = [
    merchantOf('m_1', 'ACTIVE', true),
    merchantOf('m_2', 'ACTIVE', false),
    merchantOf('m_3', 'X', true),
  ];
  t.same(
    [...inactiveAmong(keys, merchants)],
    [
      { name: 'key:revoked', value: { ...key, permissions: [], status: 'REVOKED', expiresAt: null } },
      { name: 'key:ends', value: { ...key, permissions: [], status: 'ACTIVE', expiresAt: '2026-01-01T00:00:00.000Z' } },
      ...(
        [
          ['m_2', 'ACTIVE', false],
          ['m_3', 'X', true],
        ] as const
      ).map(([merchantId, status, goLive]) => ({
        name: `merchant:${merchantId}`,
        value: { merchantId, name: '', status, goLive, ipAllowlist: null, originAllowlist: null, revision: 6 },
      })),
    ],
  );
  t.end();
});

t.test('a report with names other than records is rejected', (t) => {
  const report = { instanceId: 'g', ...known };
  for (const name of ['key:\u0000', 'key:a', 'merchant:m 1', 'meta', `${keyName}\n`]) {
    t.equal(readReport(JSON.stringify({ ...report, entries: [{ name, value: {} }] })), null, JSON.stringify(name));
  }
  t.not(readReport(JSON.stringify({ ...report, entries: [{ name: keyName, value: {} }] })), null);
  t.end();
});
