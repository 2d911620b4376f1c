import { deepStrictEqual } from 'node:assert/strict';
import fc from 'fast-check';
import t from 'tap';
import {
  compileKeyRecord,
  compileMerchantRecord,
  joinCredential,
  MalformedRecord,
  maxListEntries,
  parseMetaRecord,
  parseRecordText,
} from '../../src/gateway/records.js';
import type { KeyRecord, MerchantRecord } from '../../src/gateway/records.js';
import type { Credential } from '../../src/policy/facts.js';
import { address } from '../policy/fixtures.js';

const keyRecord: KeyRecord = Object.freeze({
  keyId: 'key_1',
  merchantId: 'm-1',
  environment: 'live',
  status: 'ACTIVE',
  permissions: ['payouts:write'],
  expiresAt: '2025-01-15T12:00:00Z',
  revision: 7,
});
const merchantRecord: MerchantRecord = Object.freeze({
  merchantId: 'm-1',
  name: 'Shop',
  status: 'ACTIVE',
  goLive: true,
  ipAllowlist: ['192.0.2.0/24'],
  originAllowlist: ['shop.example'],
  revision: 8,
});

/** Processes a key record and its merchant record as a store does. */
function read(key: unknown, merchant: unknown): Credential {
  return joinCredential(compileKeyRecord(key), compileMerchantRecord(merchant));
}

function readsAs(key: unknown, merchant: unknown): 'credential' | 'malformed' {
  try {
    read(key, merchant);
    return 'credential';
  } catch (error) {
    if (!(error instanceof MalformedRecord)) throw error;
    if (error.name !== 'MalformedRecord' || error.message === '') throw new Error('the error does not name the fault');
    return 'malformed';
  }
}

function without(record: object, field: string): object {
  return Object.fromEntries(Object.entries(record).filter(([name]) => name !== field));
}

const times = (text: string, count: number): string => text.repeat(count);
const tooMany = (entry: string): string[] => Array.from({ length: maxListEntries + 1 }, () => entry);

const badIdentifiers = ['', times('a', 65), 'a b', 'a\n', 'a:b', 'é', '*', null, 1, true, [], {}, ['key_1']];
const badStatuses = ['', times('A', 33), null, 1, true, [], {}];
const badRevisions = [-1, 1.5, 2 ** 53, '1', null, true, [], {}];
const badMoments = ['', times('2', 41), 0, 1_736_942_400_000, true, [], {}, 'never', '2025'];
const badLists = ['', '*', 1, true, {}, { 0: '*' }, [null], [1], [['*']], [times('a', 513)]];

/** Invalid values for each field, all of them JSON. */
const badKeyFields: Readonly<Record<keyof KeyRecord, readonly unknown[]>> = {
  keyId: badIdentifiers,
  merchantId: badIdentifiers,
  environment: ['LIVE', 'production', '', 'live ', null, 1, true, ['live'], {}],
  status: badStatuses,
  permissions: [
    ...badLists,
    null,
    tooMany('*'),
    ...['', ' *', '**', 'payouts', 'payouts:', ':read', 'payouts:delete', 'Payouts:read', 'payouts:read '].map(
      (one) => ['*', one],
    ),
  ],
  expiresAt: badMoments,
  revision: badRevisions,
  statusChangedAt: [...badMoments, null],
  label: [times('a', 257), null, 1, true, [], {}],
  graceEndsAt: [...badMoments, null],
};
const badMerchantFields: Readonly<Record<keyof MerchantRecord, readonly unknown[]>> = {
  merchantId: badIdentifiers,
  statusChangedAt: [...badMoments, null],
  name: [times('a', 257), null, 1, true, [], {}],
  status: badStatuses,
  goLive: ['true', '', 0, 1, null, [], {}],
  ipAllowlist: [
    ...badLists,
    tooMany('192.0.2.1'),
    ...['', '*', '192.0.2.1/33', '192.0.2', '010.0.0.1', '192.0.2.1 ', 'shop.example', '::1%lo'].map((one) => [
      '192.0.2.1',
      one,
    ]),
  ],
  originAllowlist: [
    ...badLists,
    tooMany('shop.example'),
    ...['', '*', '*.*', 'shop.example/', 'ftp://shop.example', 'a b', 'shop.example:99999', '*shop.example'].map(
      (one) => ['shop.example', one],
    ),
  ],
  revision: badRevisions,
};

t.test('every field is required and must match the contract', (t) => {
  t.equal(readsAs(keyRecord, merchantRecord), 'credential', 'the records themselves are valid');
  for (const [field, values] of Object.entries(badKeyFields)) {
    if (!['statusChangedAt', 'label', 'graceEndsAt'].includes(field))
      t.equal(readsAs(without(keyRecord, field), merchantRecord), 'malformed', `a key without ${field}`);
    const taken = values.filter((value) => readsAs({ ...keyRecord, [field]: value }, merchantRecord) !== 'malformed');
    t.strictSame(taken, [], `a key with an invalid ${field}`);
  }
  for (const [field, values] of Object.entries(badMerchantFields)) {
    if (field !== 'statusChangedAt')
      t.equal(readsAs(keyRecord, without(merchantRecord, field)), 'malformed', `a merchant without ${field}`);
    const taken = values.filter((value) => readsAs(keyRecord, { ...merchantRecord, [field]: value }) !== 'malformed');
    t.strictSame(taken, [], `a merchant with an invalid ${field}`);
  }
  for (const value of [null, 'ACTIVE', 1, true, [], [keyRecord], {}, undefined]) {
    t.throws(() => compileKeyRecord(value), MalformedRecord, JSON.stringify(value));
    t.throws(() => compileMerchantRecord(value), MalformedRecord, JSON.stringify(value));
  }
  t.end();
});

t.test('each field may be exactly as long as its limit', (t) => {
  const longest = times('a', 64);
  const key = { ...keyRecord, keyId: longest, merchantId: longest, status: times('A', 32), revision: 2 ** 53 - 1 };
  const merchant = {
    ...merchantRecord,
    merchantId: longest,
    name: times('n', 256),
    status: times('A', 32),
    revision: 0,
  };
  const full = Array.from({ length: maxListEntries }, (_, index) => `10.0.${index >> 8}.${index & 255}`);
  t.equal(readsAs(key, merchant), 'credential');
  t.equal(readsAs(keyRecord, { ...merchantRecord, ipAllowlist: full }), 'credential');
  t.equal(readsAs(keyRecord, { ...merchantRecord, name: '', originAllowlist: [] }), 'credential');
  t.end();
});

t.test('limits are checked before anything is compiled: parsing alone refuses what is too long', (t) => {
  t.throws(() => compileKeyRecord({ ...keyRecord, permissions: tooMany('*') }), MalformedRecord);
  t.throws(() => compileKeyRecord({ ...keyRecord, expiresAt: times('2', 41) }), MalformedRecord);
  t.throws(() => compileMerchantRecord({ ...merchantRecord, ipAllowlist: tooMany('192.0.2.1') }), MalformedRecord);
  t.throws(() => compileMerchantRecord({ ...merchantRecord, originAllowlist: [times('a', 513)] }), MalformedRecord);
  // Regression: the message for each of these was `/ipAllowlist must be null`, as if no list were allowed.
  const problems: [unknown, RegExp][] = [
    [tooMany('192.0.2.1'), /^\/ipAllowlist must not have more than 10000 items$/],
    ['192.0.2.1', /^\/ipAllowlist must be array$/],
    [['192.0.2.1', null], /^\/ipAllowlist\/1 must be string$/],
  ];
  for (const [ipAllowlist, message] of problems)
    t.throws(() => compileMerchantRecord({ ...merchantRecord, ipAllowlist }), { message });
  t.end();
});

t.test('unknown fields are ignored, so that the records of a newer registry do not stop an older gateway', (t) => {
  const more = { label: 'x', createdAt: null, nested: { a: [1] }, ['__proto__']: 1, toString: 'x' };
  const credential = read({ ...keyRecord, ...more }, { ...merchantRecord, ...more });
  t.match(credential, { keyId: 'key_1', merchantId: 'm-1', environment: 'live', keyStatus: 'ACTIVE', goLive: true });
  t.same(
    Object.keys(credential).toSorted(),
    Object.keys(read(keyRecord, merchantRecord)).toSorted(),
    'the credential has no unknown field',
  );
  t.end();
});

t.test('a credential has exactly the values of its two records', (t) => {
  const credential = read(
    { ...keyRecord, environment: 'test', status: 'REVOKED' },
    { ...merchantRecord, status: 'SUSPENDED', goLive: false },
  );
  t.match(credential, {
    keyId: 'key_1',
    merchantId: 'm-1',
    environment: 'test',
    keyStatus: 'REVOKED',
    merchantStatus: 'SUSPENDED',
    goLive: false,
    expiresAt: Date.UTC(2025, 0, 15, 12),
  });
  t.ok(credential.permissions.allow('payouts', 'write'));
  t.notOk(credential.permissions.allow('payouts', 'read'));
  t.ok(credential.ipAllowlist?.contains(address('192.0.2.200')));
  t.equal(credential.ipAllowlist?.contains(address('198.51.100.1')), false);
  t.ok(credential.originAllowlist?.matches({ header: 'host', value: 'shop.example' }));
  t.equal(credential.originAllowlist?.matches({ header: 'host', value: 'evil.example' }), false);
  t.end();
});

t.test('a key has the permissions of its own record, whatever was read before', (t) => {
  const read = (...permissions: string[]) => compileKeyRecord({ ...keyRecord, permissions }).permissions;
  for (let time = 0; time < 2; time += 1) {
    const wrong = Array.from({ length: 1_500 }, (_, number) => number).filter((number) => {
      const own = read(`payouts-${number}:read`, 'wallets:write');
      const allowed = own.allow(`payouts-${number}`, 'read') && own.allow('wallets', 'write');
      const more = own.allow(`payouts-${number}`, 'write') || own.allow('wallets', 'read');
      return !allowed || more || own.allow(`payouts-${number + 1}`, 'read');
    });
    t.same(wrong, []);
    t.throws(() => read('payouts-1:read,wallets:write'), MalformedRecord);
    t.throws(() => read('payouts-1:read","wallets:write'), MalformedRecord);
  }
  t.ok(read('wallets:write', 'payouts:read').allow('payouts', 'read'));
  t.notOk(read('wallets:write').allow('payouts', 'read'));
  t.notOk(read().allow('wallets', 'write'));
  t.end();
});

t.test('null is an unconfigured list; an empty list admits no client', (t) => {
  const open = read(keyRecord, { ...merchantRecord, ipAllowlist: null, originAllowlist: null });
  t.equal(open.ipAllowlist, null);
  t.equal(open.originAllowlist, null);
  const shut = read({ ...keyRecord, permissions: [] }, { ...merchantRecord, ipAllowlist: [], originAllowlist: [] });
  t.equal(shut.ipAllowlist?.contains(address('192.0.2.1')), false);
  t.equal(shut.originAllowlist?.matches({ header: 'host', value: 'shop.example' }), false);
  t.notOk(shut.permissions.allow('payouts', 'read'));
  t.end();
});

t.test("a key's expiry is one instant in any time zone; null never expires", (t) => {
  const noon = Date.UTC(2025, 0, 15, 12);
  const rows: readonly [string | null, number | null][] = [
    [null, null],
    ['2025-01-15T12:00:00Z', noon],
    ['2025-01-15T13:00:00+01:00', noon],
    ['2025-01-15T06:30:00-05:30', noon],
    ['2025-01-15T12:00:00.250Z', noon + 250],
    ['2024-02-29T00:00:00Z', Date.UTC(2024, 1, 29)],
    ['2000-02-29T23:59:59Z', Date.UTC(2000, 1, 29, 23, 59, 59)],
  ];
  for (const [expiresAt, moment] of rows) t.equal(read({ ...keyRecord, expiresAt }, merchantRecord).expiresAt, moment);
  t.end();
});

t.test('a date without a zone, or in a form that parsers read differently, is refused', (t) => {
  const texts = [
    '2025-01-15T12:00:00',
    '2025-01-15T12:00:00.000',
    '2025-01-15',
    '2025-01-15 12:00:00Z',
    '2025-01-15t12:00:00z',
    '2025-01-15T12:00Z',
    '2025-01-15T12:00:00+01',
    '2025-01-15T12:00:00+0100',
    '2025-01-15T12:00:00 Z',
    ' 2025-01-15T12:00:00Z',
    '2025-01-15T12:00:00Z\n',
    '2025-01-15T12:00:00Z (noon)',
    '15 Jan 2025 12:00:00 GMT',
    '1736942400000',
    '+002025-01-15T12:00:00Z',
    '20250115T120000Z',
  ];
  for (const expiresAt of texts) t.equal(readsAs({ ...keyRecord, expiresAt }, merchantRecord), 'malformed', expiresAt);
  t.end();
});

t.test('an impossible date is refused, not moved to the next month: a key would outlive its expiry', (t) => {
  const texts = [
    '2025-00-15T12:00:00Z',
    '2025-13-15T12:00:00Z',
    '2025-01-00T12:00:00Z',
    '2025-01-32T12:00:00Z',
    '2025-02-30T12:00:00Z',
    '2025-02-29T12:00:00Z',
    '2100-02-29T12:00:00Z',
    '2025-04-31T12:00:00+02:00',
    '2025-01-15T25:00:00Z',
    '2025-01-15T12:60:00Z',
    '2025-01-15T12:00:00+24:00',
    '2025-01-15T12:00:00+01:60',
  ];
  t.same(
    texts.filter((expiresAt) => readsAs({ ...keyRecord, expiresAt }, merchantRecord) !== 'malformed'),
    [],
  );
  t.throws(() => read({ ...keyRecord, expiresAt: '2025-13-15T12:00:00Z' }, merchantRecord), { message: /expiresAt/ });
  t.end();
});

t.test('a meta record has the known layout or is refused', (t) => {
  const meta = { version: 1, generation: '01JHN0000000000000000000AA', projectedAt: '2025-01-15T12:00:00.000Z' };
  t.doesNotThrow(() => parseMetaRecord(meta));
  t.doesNotThrow(() => parseMetaRecord({ ...meta, more: [1] }), 'unknown fields are ignored');
  const bad = [
    ...[null, '', 1, true, [], [meta], {}, undefined],
    ...[0, 2, '1', 1.5, null, true, [1]].map((version) => ({ ...meta, version })),
    ...['', times('a', 65), 1, null].map((generation) => ({ ...meta, generation })),
    ...[times('2', 41), 1, null].map((projectedAt) => ({ ...meta, projectedAt })),
    ...Object.keys(meta).map((field) => without(meta, field)),
  ];
  for (const value of bad) t.throws(() => parseMetaRecord(value), MalformedRecord, JSON.stringify(value));
  t.end();
});

t.test('for any JSON value, reading a record either succeeds or fails as malformed', (t) => {
  const value = fc.jsonValue({ maxDepth: 3 });
  const text = fc.string({ unit: 'binary', maxLength: 60 });
  const near = (valid: object): fc.Arbitrary<unknown> =>
    fc
      .dictionary(fc.constantFrom(...Object.keys(valid)), fc.oneof(value, text, fc.array(text), fc.constant(null)), {
        maxKeys: 3,
      })
      .map((changes) => ({ ...valid, ...changes }));
  fc.assert(
    fc.property(
      fc.oneof(value, near(keyRecord), fc.constant(keyRecord)),
      fc.oneof(value, near(merchantRecord), fc.constant(merchantRecord)),
      (key, merchant) => ['credential', 'malformed'].includes(readsAs(key, merchant)),
    ),
    { numRuns: 2000 },
  );
  t.end();
});

t.test(
  'a record with a duplicate member is malformed, in any spelling and depth, and the error does not quote it',
  (t) => {
    const secret = 'svc_live_Secret';
    const twice = (member: string): string => `${JSON.stringify(keyRecord).slice(0, -1)},${member}}`;
    t.strictSame(parseRecordText(JSON.stringify(keyRecord)), keyRecord);
    t.strictSame(parseRecordText(twice('"more":{"of":[1.5e3,null]}')), { ...keyRecord, more: { of: [1500, null] } });
    for (const member of [
      ...['"status":"ACTIVE"', '"status":"REVOKED"', '"st\\u0061tus":"ACTIVE"', '"revision":8', '"permissions":["*"]'],
      ...[`"${secret}":1,"${secret}":2`, '"more":{"a":1,"a":1}', '"more":[{"a":1,"a":1}]'],
    ]) {
      const message = 'the record has two fields with the same name';
      t.throws(() => parseRecordText(twice(member)), { name: 'MalformedRecord', message }, member);
    }
    for (const text of [secret, `{"${secret}"`, `["${secret}"`, '', '{"a":1}{"a":1}', `{"a":"${secret}"}}`]) {
      t.throws(() => parseRecordText(text), { name: 'MalformedRecord', message: 'the record is not JSON' }, text);
    }
    t.throws(() => parseRecordText('['.repeat(100_000)), { name: 'MalformedRecord', message: /nested more than 32/ });
    t.end();
  },
);

t.test('any record that a registry may write is read back unchanged', (t) => {
  const value = fc.anything({ maxDepth: 4, key: fc.string().filter((name) => name !== '__proto__') });
  fc.assert(
    fc.property(fc.dictionary(fc.string(), value), fc.double(), (more, number) => {
      const text = JSON.stringify({ ...more, ...keyRecord, number });
      if (text.includes('__proto__')) return;
      deepStrictEqual(parseRecordText(text), JSON.parse(text));
    }),
    { numRuns: 1000 },
  );
  t.end();
});
