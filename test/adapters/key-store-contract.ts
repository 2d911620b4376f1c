import type { Test } from 'tap';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { KeyStoreUnavailable, type KeyStore } from '../../src/gateway/key-store.js';
import type { KeyRecord, MerchantRecord } from '../../src/gateway/records.js';
import { address } from '../policy/fixtures.js';

/** The contents of a store: the JSON value of each record, by the record's name (`mg:…`). */
type StoredRecords = Readonly<Record<string, unknown>>;

/** An adapter with the given records. */
interface OpenedKeyStore {
  readonly store: KeyStore;
  close(): Promise<void>;
}

/** Opens the adapter under test. */
export type OpenKeyStore = (records: StoredRecords) => Promise<OpenedKeyStore>;

/** A key in the seeded records. */
export const seededKey = 'svc_live_Contract0001';
const key = seededKey;
const siblingKey = 'svc_live_Contract0002';
const otherKey = 'svc_test_Contract0003';
const unknownKey = 'svc_live_Contract9999';
const keys = [key, siblingKey, otherKey, unknownKey];
const idOf = (ofKey: string): string => lookupIdOf(ofKey, null);
const keyName = (ofKey: string): string => `mg:key:${idOf(ofKey)}`;

const keyRecord: KeyRecord = {
  keyId: 'key_1',
  merchantId: 'm_1',
  environment: 'live',
  status: 'ACTIVE',
  permissions: ['payouts:write'],
  expiresAt: null,
  revision: 1,
};
const merchantRecord: MerchantRecord = {
  merchantId: 'm_1',
  name: 'First',
  status: 'ACTIVE',
  goLive: true,
  ipAllowlist: null,
  originAllowlist: null,
  revision: 1,
};
const meta = { version: 1, generation: '01CONTRACT', projectedAt: '2025-01-15T12:00:00.000Z' };

/** Two keys of one merchant and a key of another. */
export const seededRecords: StoredRecords = {
  'mg:meta': meta,
  [keyName(key)]: keyRecord,
  [keyName(siblingKey)]: { ...keyRecord, keyId: 'key_2', permissions: ['*'] },
  'mg:merchant:m_1': merchantRecord,
  [keyName(otherKey)]: { ...keyRecord, keyId: 'key_3', merchantId: 'm_2', environment: 'test' },
  'mg:merchant:m_2': { ...merchantRecord, merchantId: 'm_2', name: 'Second', goLive: false },
};

const seeded = seededRecords;

/**
 * The result of a look-up as a text: `absent`, `found` with the id of the key, or `could not ask`. The text also names
 * a key that the error message contains. Any other error is a defect and is thrown.
 */
async function resultOf(store: KeyStore, lookupId: string): Promise<string> {
  try {
    const { credential } = await store.find(lookupId);
    return credential === null ? 'absent' : `found ${credential.keyId}`;
  } catch (error) {
    if (!(error instanceof KeyStoreUnavailable)) throw error;
    if (error.name !== 'KeyStoreUnavailable' || error.message === '') throw new Error('it does not say what is wrong');
    const leaked = keys.find((one) => error.message.includes(one) || error.message.includes(idOf(one)));
    return leaked === undefined ? 'could not ask' : `could not ask, and told the key ${leaked}`;
  }
}

function without(name: string): StoredRecords {
  return Object.fromEntries(Object.entries(seeded).filter(([storeKey]) => storeKey !== name));
}

/** Stores with one malformed record, and the keys that can therefore be neither found nor reported as absent. */
const damages: readonly { name: string; records: StoredRecords; unaskable: readonly string[] }[] = [
  ...Object.entries({
    null: null,
    'a text': 'ACTIVE',
    'a list': [keyRecord],
    'an empty object': {},
    'a status that is no text': { ...keyRecord, status: 1 },
    'no status': { ...keyRecord, status: undefined },
    'permissions that are no list': { ...keyRecord, permissions: '*' },
    'an unknown permission': { ...keyRecord, permissions: ['payouts:everything'] },
    'an end without its zone': { ...keyRecord, expiresAt: '2025-01-15T12:00:00' },
    'an unknown environment': { ...keyRecord, environment: 'production' },
    'a merchant without a record': { ...keyRecord, merchantId: 'm_nobody' },
    'a merchant named after a part of every object': { ...keyRecord, merchantId: '__proto__' },
  }).map(([name, record]) => ({
    name: `a key record that is or has ${name}`,
    records: { ...seeded, [keyName(key)]: record },
    unaskable: [key],
  })),
  ...Object.entries({
    null: null,
    'a number': 1,
    'an empty object': {},
    'a status that is no text': { ...merchantRecord, status: null },
    'goLive as a text': { ...merchantRecord, goLive: 'true' },
    'an IP allowlist entry that is no address': { ...merchantRecord, ipAllowlist: ['192.0.2.1', 'everybody'] },
    'an origin allowlist entry that is no origin': { ...merchantRecord, originAllowlist: ['https://'] },
    'the id of another merchant': { ...merchantRecord, merchantId: 'm_2' },
  }).map(([name, record]) => ({
    name: `a merchant record that is or has ${name}`,
    records: { ...seeded, 'mg:merchant:m_1': record },
    unaskable: [key, siblingKey],
  })),
  { name: 'no merchant record', records: without('mg:merchant:m_1'), unaskable: [key, siblingKey] },
];

/**
 * The contract that every key store adapter must fulfil.
 * @param open opens the adapter with the given records; the adapter is closed after each test
 */
export function keyStoreContract(t: Test, open: OpenKeyStore): void {
  const opened = async (t: Test, records: StoredRecords): Promise<KeyStore> => {
    const adapter = await open(records);
    t.teardown(() => adapter.close());
    return adapter.store;
  };

  t.test('a key that the store holds is found, with its own merchant', async (t) => {
    const store = await opened(t, seeded);
    t.match((await store.find(idOf(key))).credential, {
      keyId: 'key_1',
      merchantId: 'm_1',
      environment: 'live',
      keyStatus: 'ACTIVE',
      merchantStatus: 'ACTIVE',
      goLive: true,
      expiresAt: null,
      ipAllowlist: null,
      originAllowlist: null,
    });
    t.match((await store.find(idOf(siblingKey))).credential, { keyId: 'key_2', merchantId: 'm_1' });
    t.match((await store.find(idOf(otherKey))).credential, {
      keyId: 'key_3',
      merchantId: 'm_2',
      environment: 'test',
      goLive: false,
    });
    t.equal((await store.find(idOf(key))).credential?.permissions.allow('payouts', 'read'), false);
    t.equal((await store.find(idOf(siblingKey))).credential?.permissions.allow('payouts', 'read'), true);
    t.equal(store.unavailableReason(), null, 'and nothing is wrong with the store');
  });

  t.test('a found credential has its lists compiled', async (t) => {
    const store = await opened(t, {
      ...seeded,
      [keyName(key)]: { ...keyRecord, expiresAt: '2025-01-15T13:00:00+01:00' },
      'mg:merchant:m_1': { ...merchantRecord, ipAllowlist: ['192.0.2.0/24'], originAllowlist: [] },
    });
    const { credential } = await store.find(idOf(key));
    t.equal(credential?.expiresAt, Date.UTC(2025, 0, 15, 12));
    t.equal(credential?.ipAllowlist?.contains(address('192.0.2.7')), true);
    t.equal(credential?.ipAllowlist?.contains(address('198.51.100.7')), false);
    t.equal(credential?.originAllowlist?.matches({ header: 'host', value: 'shop.example' }), false);
  });

  t.test('a key that the store does not hold is absent, and so is every text that is no look-up id', async (t) => {
    const store = await opened(t, seeded);
    const id = idOf(key);
    const texts = [
      ...[idOf(unknownKey), '', id.toUpperCase(), id.slice(0, -1), `${id}0`, ` ${id}`, `key:${id}`, keyName(key)],
      ...[key, '*', '__proto__', 'constructor', 'toString', 'hasOwnProperty', '\u0000', '../meta', 'é'.repeat(64)],
    ];
    for (const text of texts) t.equal(await resultOf(store, text), 'absent', JSON.stringify(text));
    t.equal(store.unavailableReason(), null, 'an absent key is an answer of a store that can be asked');
  });

  t.test('a key or merchant that is switched off is found, because the decision is not the store’s', async (t) => {
    const store = await opened(t, {
      ...seeded,
      [keyName(key)]: { ...keyRecord, status: 'REVOKED', expiresAt: '2001-01-01T00:00:00Z' },
      'mg:merchant:m_1': { ...merchantRecord, status: 'SUSPENDED', goLive: false },
    });
    t.match((await store.find(idOf(key))).credential, {
      keyStatus: 'REVOKED',
      merchantStatus: 'SUSPENDED',
      goLive: false,
    });
  });

  t.test('fields and records that a reader does not know are ignored', async (t) => {
    const store = await opened(t, {
      ...seeded,
      'mg:meta': { ...meta, more: true },
      [keyName(key)]: { ...keyRecord, label: 'x', createdAt: 1 },
      'mg:merchant:m_1': { ...merchantRecord, contact: { mail: 'x@shop.example' } },
      'mg:revision': 7,
      'mg:gateway:g1': { revision: 7 },
      'mg:something:else': [],
      'mg:merchant:m_unused': { merchantId: 'm_unused' },
    });
    t.equal(await resultOf(store, idOf(key)), 'found key_1');
    t.equal(await resultOf(store, idOf(unknownKey)), 'absent');
  });

  t.test('a damaged record makes its own keys unaskable: neither absent nor found, and no other key', async (t) => {
    for (const { name, records, unaskable } of damages) {
      await t.test(name, async (t) => {
        const store = await opened(t, records);
        const expected = { [key]: 'found key_1', [siblingKey]: 'found key_2', [otherKey]: 'found key_3' };
        for (const one of [key, siblingKey, otherKey, key] as const) {
          const result = unaskable.includes(one) ? 'could not ask' : expected[one];
          t.equal(await resultOf(store, idOf(one)), result, one);
        }
        t.equal(await resultOf(store, idOf(unknownKey)), 'absent');
        t.equal(store.unavailableReason(), null, 'the store as a whole can be asked');
      });
    }
  });

  t.test('a store that was not seeded, or was emptied, can say nothing about any key', async (t) => {
    for (const records of [{}, without('mg:meta')]) {
      const store = await opened(t, records);
      for (const one of keys) t.equal(await resultOf(store, idOf(one)), 'could not ask');
      t.match(store.unavailableReason(), /^.+$/, 'and says why');
    }
  });

  t.test('a store whose meta record does not parse can say nothing either', async (t) => {
    const asked: [string, string][] = [];
    for (const damaged of [null, '', 'x', 1, [], {}, { ...meta, version: '1' }]) {
      const store = await opened(t, { ...seeded, 'mg:meta': damaged });
      asked.push([JSON.stringify(damaged), await resultOf(store, idOf(key))]);
    }
    t.same(
      asked.filter(([, result]) => result !== 'could not ask'),
      [],
    );
  });

  t.test('a store of a layout that this reader does not know can say nothing', async (t) => {
    const store = await opened(t, { ...seeded, 'mg:meta': { ...meta, version: 2 } });
    t.equal(await resultOf(store, idOf(key)), 'could not ask');
  });

  t.test('questions asked at the same time get each its own answer', async (t) => {
    const store = await opened(t, { ...seeded, [keyName(otherKey)]: {} });
    const results = ['found key_1', 'found key_2', 'could not ask', 'absent'];
    const asked = Array.from({ length: 50 }, () => keys).flat();
    t.same(
      await Promise.all(asked.map((one) => resultOf(store, idOf(one)))),
      asked.map((one) => results[keys.indexOf(one)]),
    );
  });

  t.test('a store that cannot answer fails, and says of no key that it is unknown', async (t) => {
    const store = await opened(t, {});
    await t.rejects(async () => store.find(idOf(key)), { name: 'KeyStoreUnavailable' });
  });
}
