import fc from 'fast-check';
import t from 'tap';
import {
  credentialRules,
  denialOf,
  denials,
  denyCredential,
  denyRequest,
  reasonOf,
  requestRules,
} from '../../src/policy/decision-table.js';
import type { DenialCode } from '../../src/policy/decision-table.js';
import { explainRules } from '../../src/policy/explain.js';
import type { Credential, RequestFacts } from '../../src/policy/facts.js';
import { compileIpRanges } from '../../src/policy/ip-ranges.js';
import type { Environment, KeyFormat } from '../../src/policy/key-format.js';
import { compileOriginPatterns } from '../../src/policy/origin-patterns.js';
import { compilePermissions } from '../../src/policy/permissions.js';
import type { Access } from '../../src/policy/permissions.js';
import { acceptedFacts, acceptingCredential, address, now } from './fixtures.js';

/** Applies all rules of the table. Returns the code of the first rule that fails; null if all pass. */
const decide = (facts: RequestFacts, credential: Credential | null): DenialCode | null =>
  denyRequest(facts) ?? denyCredential(facts, credential);

/** The contract's table, repeated here: order, codes, statuses and messages. */
const table = [
  ['https_required', 401, 'API requests must use HTTPS (TLS)'],
  ['tor_blocked', 401, 'Tor traffic is not allowed'],
  ['key_required', 401, 'API Key is required'],
  ['key_format', 401, 'Invalid API key format'],
  ['test_key_in_live', 401, 'Test API keys are not valid in production'],
  ['live_key_in_test', 401, 'Live API keys are not valid in this environment'],
  ['key_unknown', 401, 'Invalid API Key'],
  ['key_inactive', 401, 'API Key is inactive or revoked'],
  ['merchant_inactive', 401, 'Merchant is not active'],
  ['merchant_not_live', 401, 'Merchant is not live'],
  ['ip_not_allowed', 401, 'IP address not allowed'],
  ['origin_not_allowed', 401, 'Origin not allowed'],
  ['permission_denied', 403, 'Forbidden'],
] as const;

type Code = (typeof table)[number][0];
const codes: readonly Code[] = table.map(([code]) => code);
const requestCodes = codes.slice(0, 6);
const credentialCodes = codes.slice(6);

/** One way to fail one row of the table, and the environments where that is possible. */
interface Fault {
  readonly code: Code;
  readonly how: string;
  readonly only?: Environment;
  readonly facts?: Partial<RequestFacts>;
  /** The fault of the credential; null: the key is unknown. */
  readonly credential?: Partial<Credential> | null;
}

const faults: readonly Fault[] = [
  { code: 'https_required', how: 'plain HTTP', facts: { secure: false } },
  { code: 'tor_blocked', how: 'a Tor exit', facts: { torExit: true } },
  { code: 'tor_blocked', how: 'an onion service', facts: { onionService: true } },
  { code: 'key_required', how: 'no key', facts: { keyFormat: 'absent' } },
  { code: 'key_format', how: 'a malformed key', facts: { keyFormat: 'malformed' } },
  { code: 'test_key_in_live', how: 'a test key', only: 'live', facts: { keyFormat: 'test' } },
  { code: 'live_key_in_test', how: 'a live key', only: 'test', facts: { keyFormat: 'live' } },
  { code: 'key_unknown', how: 'an unknown key', credential: null },
  { code: 'key_inactive', how: 'a revoked key', credential: { keyStatus: 'REVOKED' } },
  { code: 'key_inactive', how: 'an inactive key', credential: { keyStatus: 'INACTIVE' } },
  { code: 'key_inactive', how: 'a key status in lower case', credential: { keyStatus: 'active' } },
  { code: 'key_inactive', how: 'an expired key', credential: { expiresAt: now - 1 } },
  { code: 'merchant_inactive', how: 'a suspended merchant', credential: { merchantStatus: 'SUSPENDED' } },
  { code: 'merchant_inactive', how: 'a merchant without a status', credential: { merchantStatus: '' } },
  { code: 'merchant_not_live', how: 'go-live not enabled', only: 'live', credential: { goLive: false } },
  { code: 'ip_not_allowed', how: 'an address outside the list', facts: { clientAddress: address('192.0.3.0') } },
  { code: 'ip_not_allowed', how: 'an address of the other family', facts: { clientAddress: address('2001:db8::1') } },
  { code: 'ip_not_allowed', how: 'an empty list', credential: { ipAllowlist: compileIpRanges([]) } },
  {
    code: 'origin_not_allowed',
    how: 'another origin',
    facts: { origin: { header: 'origin', value: 'https://evilshop.example' } },
  },
  { code: 'origin_not_allowed', how: 'no Origin, Referer or Host', facts: { origin: null } },
  { code: 'origin_not_allowed', how: 'an empty list', credential: { originAllowlist: compileOriginPatterns([]) } },
  { code: 'permission_denied', how: 'another resource', facts: { resource: 'customers' } },
  { code: 'permission_denied', how: 'another access', facts: { access: 'read' } },
  { code: 'permission_denied', how: 'no permissions', credential: { permissions: compilePermissions([]) } },
];

const environments: readonly Environment[] = ['live', 'test'];

function faultsIn(environment: Environment): readonly Fault[] {
  return faults.filter((fault) => fault.only === undefined || fault.only === environment);
}

/** The accepted request of an environment, with these faults. */
function broken(environment: Environment, present: readonly Fault[]): [RequestFacts, Credential | null] {
  const facts = Object.assign({}, acceptedFacts(environment), ...present.map((fault) => fault.facts)) as RequestFacts;
  if (present.some((fault) => fault.credential === null)) return [facts, null];
  const changes = present.map((fault) => fault.credential);
  return [facts, Object.assign({}, acceptingCredential(environment), ...changes) as Credential];
}

/** Whether two faults fit into one request, that is, do not set the same fact to different values. */
function fit(a: Fault, b: Fault): boolean {
  const fixed = Object.keys(a.facts ?? {});
  return !Object.keys(b.facts ?? {}).some((key) => fixed.includes(key));
}

t.test('the table has the rows, order, statuses and exact messages of the contract', (t) => {
  const rows = denials.map(({ code, status, message }) => [code, status, message]);
  t.strictSame(rows, table);
  for (const row of denials) t.equal(denialOf(row.code), row);
  t.throws(() => denialOf('no_such_code' as DenialCode), { message: 'no denial has the code no_such_code' });
  t.end();
});

t.test('rules about the request alone come before rules about the key', (t) => {
  t.strictSame(
    requestRules.map(({ code }) => code),
    requestCodes,
  );
  t.strictSame(
    credentialRules.map(({ code }) => code),
    credentialCodes,
  );
  t.end();
});

t.test('a request that satisfies every rule is accepted, in either environment', (t) => {
  for (const environment of environments) {
    const [facts, credential] = broken(environment, []);
    t.equal(decide(facts, credential), null, environment);
    t.equal(denyRequest(facts), null, `${environment}, request half`);
    t.equal(denyCredential(facts, credential), null, `${environment}, credential half`);
  }
  t.end();
});

t.test('each row denies with its own code, in its own half of the decision', (t) => {
  t.strictSame([...new Set(faults.map((fault) => fault.code))], codes, 'every row has a fault');
  for (const environment of environments) {
    for (const fault of faultsIn(environment)) {
      const [facts, credential] = broken(environment, [fault]);
      const ofRequest = requestCodes.includes(fault.code);
      const name = `${environment}: ${fault.how}`;
      t.equal(decide(facts, credential), fault.code, name);
      t.equal(denyRequest(facts), ofRequest ? fault.code : null, `${name}, request half`);
      t.equal(denyCredential(facts, credential), ofRequest ? null : fault.code, `${name}, credential half`);
    }
  }
  t.end();
});

t.test('of any two failing checks the earlier row decides', (t) => {
  const seen = new Set<string>();
  for (const environment of environments) {
    const possible = faultsIn(environment);
    for (const [index, a] of possible.entries()) {
      for (const b of possible.slice(index + 1)) {
        if (a.code === b.code || !fit(a, b)) continue;
        seen.add(`${a.code} ${b.code}`);
        const winner = codes.indexOf(a.code) < codes.indexOf(b.code) ? a.code : b.code;
        const name = `${environment}: ${winner} wins over ${winner === a.code ? b.code : a.code} (${a.how}, ${b.how})`;
        t.equal(decide(...broken(environment, [a, b])), winner, name);
      }
    }
  }
  const pairs = codes.flatMap((a, index) => codes.slice(index + 1).map((b) => `${a} ${b}`));
  t.equal(pairs.length, 78);
  t.strictSame(
    pairs.filter((pair) => !seen.has(pair)),
    [
      // A request has only one key format.
      'key_required key_format',
      'key_required test_key_in_live',
      'key_required live_key_in_test',
      'key_format test_key_in_live',
      'key_format live_key_in_test',
      // A gateway has only one environment.
      'test_key_in_live live_key_in_test',
      'live_key_in_test merchant_not_live',
    ],
    'every pair that can occur in one request was tested',
  );
  t.end();
});

t.test('with everything wrong at once, the rows decide in order as each fault is removed', (t) => {
  for (const environment of environments) {
    const remaining = faultsIn(environment).filter((fault) => fault.facts?.keyFormat !== 'absent');
    const decisions: (DenialCode | null)[] = [];
    while (remaining.length > 0) {
      // Several faults set the key format, and `Object.assign` keeps the last value. So the list is reversed: the fault
      // of the table's first row must be kept.
      const decision = decide(...broken(environment, remaining.toReversed()));
      decisions.push(decision);
      const left = remaining.filter((fault) => fault.code !== decision);
      if (left.length === remaining.length) break;
      remaining.splice(0, remaining.length, ...left);
    }
    const never = environment === 'live' ? 'live_key_in_test' : 'test_key_in_live';
    t.strictSame(
      decisions,
      codes.filter(
        (code) => code !== never && code !== 'key_required' && (environment === 'live' || code !== 'merchant_not_live'),
      ),
      environment,
    );
  }
  t.end();
});

t.test('an unknown key fails every rule about a key, so that no rule passes by mistake', (t) => {
  const ofKey = explainRules(acceptedFacts('live'), null).filter(({ code }) =>
    credentialCodes.some((one) => one === code),
  );
  t.equal(ofKey.length, credentialCodes.length);
  for (const { code, result } of ofKey) t.equal(result, 'fails', code);
  t.equal(denyCredential(acceptedFacts('live'), null), 'key_unknown');
  t.equal(denyCredential(acceptedFacts('test'), null), 'key_unknown');
  t.end();
});

t.test('a key of the wrong form or environment fails every later check on the key', (t) => {
  const failing = (environment: Environment, keyFormat: KeyFormat): readonly string[] =>
    requestRules.filter(({ passes }) => !passes({ ...acceptedFacts(environment), keyFormat })).map(({ code }) => code);
  t.strictSame(failing('live', 'absent'), ['key_required', 'key_format', 'test_key_in_live']);
  t.strictSame(failing('live', 'malformed'), ['key_format', 'test_key_in_live']);
  t.strictSame(failing('live', 'test'), ['test_key_in_live']);
  t.strictSame(failing('live', 'live'), []);
  t.strictSame(failing('test', 'absent'), ['key_required', 'key_format', 'live_key_in_test']);
  t.strictSame(failing('test', 'malformed'), ['key_format', 'live_key_in_test']);
  t.strictSame(failing('test', 'live'), ['live_key_in_test']);
  t.strictSame(failing('test', 'test'), []);
  t.end();
});

/** The decision on the accepted request of an environment with one or two changes. */
function decideWith(
  environment: Environment,
  facts: Partial<RequestFacts>,
  credential: Partial<Credential> = {},
): DenialCode | null {
  return decide({ ...acceptedFacts(environment), ...facts }, { ...acceptingCredential(environment), ...credential });
}

t.test('go-live is required only in production', (t) => {
  t.equal(decideWith('live', {}, { goLive: false }), 'merchant_not_live');
  t.equal(decideWith('test', {}, { goLive: false }), null);
  t.equal(decideWith('test', {}, { goLive: true }), null);
  t.end();
});

t.test('a key is valid until the instant before its expiry, and invalid from its expiry on', (t) => {
  const at = (expiresAt: number | null): DenialCode | null => decideWith('live', {}, { expiresAt });
  t.equal(at(now + 1), null, 'one millisecond before expiry');
  t.equal(at(now), 'key_inactive', 'at expiry');
  t.equal(at(now - 1), 'key_inactive', 'one millisecond after expiry');
  t.equal(at(0), 'key_inactive', 'an expiry in 1970 is an expiry, not "never"');
  t.equal(at(null), null, 'no expiry');
  t.equal(at(NaN), 'key_inactive', 'an expiry that is not a number has passed');
  t.equal(decideWith('live', { now: Number.MAX_SAFE_INTEGER }, { expiresAt: null }), null, 'never expires');
  t.equal(
    decideWith('live', {}, { keyStatus: 'REVOKED', expiresAt: null }),
    'key_inactive',
    'revoked and without expiry',
  );
  t.end();
});

t.test('only the exact status ACTIVE passes, for keys and merchants alike', (t) => {
  for (const status of ['', ' ', 'active', 'Active', 'ACTIVE ', ' ACTIVE', 'INACTIVE', 'REVOKED', 'PENDING', 'null']) {
    t.equal(decideWith('live', {}, { keyStatus: status }), 'key_inactive', `key ${JSON.stringify(status)}`);
    t.equal(
      decideWith('live', {}, { merchantStatus: status }),
      'merchant_inactive',
      `merchant ${JSON.stringify(status)}`,
    );
  }
  t.end();
});

t.test('an unconfigured list admits every client, an empty list none', (t) => {
  const anywhere = { clientAddress: address('203.0.113.9'), origin: { header: 'host', value: 'x.test' } } as const;
  t.equal(decideWith('live', anywhere, { ipAllowlist: null, originAllowlist: null }), null);
  t.equal(decideWith('live', { origin: null }, { originAllowlist: null }), null, 'no Origin is needed');
  t.equal(decideWith('live', {}, { ipAllowlist: compileIpRanges([]) }), 'ip_not_allowed');
  t.equal(decideWith('live', {}, { originAllowlist: compileOriginPatterns([]) }), 'origin_not_allowed');
  t.equal(decideWith('live', { origin: null }), 'origin_not_allowed', 'the list requires an Origin');
  t.end();
});

t.test('an IPv4 client with an IPv4-mapped address is the same client', (t) => {
  t.equal(decideWith('live', { clientAddress: address('::ffff:192.0.2.7') }), null);
  t.equal(decideWith('live', { clientAddress: address('::ffff:c000:207') }), null);
  t.equal(decideWith('live', { clientAddress: address('::ffff:192.0.3.7') }), 'ip_not_allowed');
  t.end();
});

t.test('a path without a route needs no permission, but passes all other checks', (t) => {
  const noPermissions = { permissions: compilePermissions([]) };
  t.equal(decideWith('live', { resource: null }, noPermissions), null);
  t.equal(decideWith('live', {}, noPermissions), 'permission_denied');
  t.equal(
    decideWith('live', { resource: 'unheard-of' }),
    'permission_denied',
    'a resource for which no key has a permission',
  );
  t.equal(decideWith('live', { resource: '' }), 'permission_denied', 'a resource with an empty name is not "no route"');
  t.equal(decideWith('live', { resource: null }, { keyStatus: 'REVOKED' }), 'key_inactive');
  t.equal(decide({ ...acceptedFacts('live'), resource: null }, null), 'key_unknown');
  t.end();
});

/** A request and a credential as strings, for an oracle that compares strings and compiles nothing. */
interface World {
  readonly environment: Environment;
  readonly secure: boolean;
  readonly torExit: boolean;
  readonly onionService: boolean;
  readonly keyFormat: KeyFormat;
  readonly clientAddress: string;
  readonly host: string | null;
  readonly resource: string | null;
  readonly access: Access;
  readonly now: number;
  readonly record: {
    readonly keyStatus: string;
    readonly expiresAt: number | null;
    readonly permissions: readonly string[];
    readonly merchantStatus: string;
    readonly goLive: boolean;
    readonly ipAllowlist: readonly string[] | null;
    readonly originAllowlist: readonly string[] | null;
  } | null;
}

/** Whether a list is configured and does not contain the text. */
function isMissing(text: string | null, list: readonly string[] | null | undefined): boolean {
  return Array.isArray(list) && !(list as readonly (string | null)[]).includes(text);
}

/** The contract's rows as predicates that are true on failure. Without a record only `key_unknown` can apply. */
const sentences: readonly (readonly [Code, (world: World) => boolean])[] = [
  ['https_required', (w) => !w.secure],
  ['tor_blocked', (w) => w.torExit || w.onionService],
  ['key_required', (w) => w.keyFormat === 'absent'],
  ['key_format', (w) => w.keyFormat === 'malformed'],
  ['test_key_in_live', (w) => w.environment === 'live' && w.keyFormat === 'test'],
  ['live_key_in_test', (w) => w.environment === 'test' && w.keyFormat === 'live'],
  ['key_unknown', (w) => w.record === null],
  [
    'key_inactive',
    ({ record, now }) =>
      record !== null && !(record.keyStatus === 'ACTIVE' && (record.expiresAt === null || record.expiresAt > now)),
  ],
  ['merchant_inactive', ({ record }) => record !== null && record.merchantStatus !== 'ACTIVE'],
  ['merchant_not_live', ({ record, environment }) => environment === 'live' && record !== null && !record.goLive],
  ['ip_not_allowed', ({ record, clientAddress }) => isMissing(clientAddress, record?.ipAllowlist)],
  ['origin_not_allowed', ({ record, host }) => isMissing(host, record?.originAllowlist)],
  [
    'permission_denied',
    ({ record, resource, access }) =>
      record !== null &&
      resource !== null &&
      !['*', `${resource}:*`, `${resource}:${access}`].some((permission) => record.permissions.includes(permission)),
  ],
];

/** Mostly passing values, so that the later rows are reached. */
function mostly<T>(good: T, ...others: readonly T[]): fc.Arbitrary<T> {
  return fc.oneof({ weight: 12, arbitrary: fc.constant(good) }, { weight: 1, arbitrary: fc.constantFrom(...others) });
}

const addresses = ['192.0.2.7', '192.0.2.8', '2001:db8::7'];
const hosts = ['shop.example', 'pay.shop.example', 'evilshop.example'];
const permissions = ['*', 'payouts:*', 'payouts:read', 'payouts:write', 'customers:read', 'customers:*'];

const world: fc.Arbitrary<World> = fc.constantFrom(...environments).chain((environment) =>
  fc.record({
    environment: fc.constant(environment),
    secure: mostly(true, false),
    torExit: mostly(false, true),
    onionService: mostly(false, true),
    keyFormat: mostly<KeyFormat>(environment, 'absent', 'malformed', 'live', 'test'),
    clientAddress: fc.constantFrom(...addresses),
    host: mostly<string | null>('shop.example', ...hosts, null),
    resource: fc.constantFrom('payouts', 'customers', 'wallets', null),
    access: fc.constantFrom<Access>('read', 'write'),
    now: fc.constant(now),
    record: fc.option(
      fc.record({
        keyStatus: mostly('ACTIVE', 'REVOKED', 'INACTIVE', ''),
        expiresAt: mostly<number | null>(null, now - 1, now, now + 1, 0),
        permissions: fc.subarray(permissions),
        merchantStatus: mostly('ACTIVE', 'SUSPENDED', 'active'),
        goLive: mostly(true, false),
        ipAllowlist: fc.option(fc.subarray(addresses), { freq: 2 }),
        originAllowlist: fc.option(fc.subarray(hosts), { freq: 2 }),
      }),
      { freq: 15 },
    ),
  }),
);

function factsOf(world: World): RequestFacts {
  return Object.freeze({
    environment: world.environment,
    secure: world.secure,
    clientAddress: address(world.clientAddress),
    torExit: world.torExit,
    onionService: world.onionService,
    keyFormat: world.keyFormat,
    origin: world.host === null ? null : { header: 'origin', value: `https://${world.host}` },
    resource: world.resource,
    access: world.access,
    now: world.now,
  } satisfies RequestFacts);
}

function credentialOf({ environment, record }: World): Credential | null {
  if (record === null) return null;
  return Object.freeze({
    ...acceptingCredential(environment),
    keyStatus: record.keyStatus,
    expiresAt: record.expiresAt,
    permissions: compilePermissions(record.permissions),
    merchantStatus: record.merchantStatus,
    goLive: record.goLive,
    ipAllowlist: record.ipAllowlist === null ? null : compileIpRanges(record.ipAllowlist),
    originAllowlist: record.originAllowlist === null ? null : compileOriginPatterns(record.originAllowlist),
  });
}

t.test('for any request and record, the first failing row of the contract decides', (t) => {
  const decisions = new Set<string>();
  fc.assert(
    fc.property(world, (world) => {
      const expected = sentences.find(([, fails]) => fails(world))?.[0] ?? null;
      const facts = factsOf(world);
      const credential = credentialOf(world);
      decisions.add(String(expected));
      return (
        decide(facts, credential) === expected &&
        decide(facts, credential) === expected &&
        (denyRequest(facts) ?? denyCredential(facts, credential)) === expected
      );
    }),
    { seed: 20250115, numRuns: 5000 },
  );
  t.strictSame(
    [...codes, 'null'].filter((code) => !decisions.has(code)),
    [],
    'every row, and acceptance, occurred',
  );
  t.end();
});

t.test('each rule states its reason in words, with the values that it checked', (t) => {
  const facts = acceptedFacts('live');
  const key = acceptingCredential('live');
  const rows: readonly (readonly [DenialCode, Partial<RequestFacts>, Partial<Credential> | null, string])[] = [
    ['tor_blocked', { torExit: true }, null, '203.0.113.9 is a Tor exit'],
    ['tor_blocked', { onionService: true }, null, 'Host, Origin or Referer names an onion service'],
    ['key_unknown', {}, null, 'the key store has no record of this key'],
    ['key_inactive', {}, { keyStatus: 'REVOKED' }, 'the key is REVOKED (record revision 812)'],
    [
      'key_inactive',
      {},
      { keyStatus: 'REVOKED', keyStatusChangedAt: Date.UTC(2026, 4, 3, 10, 22, 31, 999) },
      'the key has been REVOKED since 2026-05-03T10:22:31.999Z (record revision 812)',
    ],
    [
      'merchant_inactive',
      {},
      { merchantStatus: 'SUSPENDED', merchantStatusChangedAt: Date.UTC(2026, 4, 3, 10, 22, 31) },
      'the merchant has been SUSPENDED since 2026-05-03T10:22:31.000Z (record revision 640)',
    ],
    ['key_inactive', {}, { expiresAt: 0 }, 'the key expired at 1970-01-01T00:00:00.000Z (record revision 812)'],
    ['key_inactive', {}, { keyStatus: 'SUSPENDED', expiresAt: 0 }, 'the key is SUSPENDED (record revision 812)'],
    ['merchant_inactive', {}, { merchantStatus: 'SUSPENDED' }, 'the merchant is SUSPENDED (record revision 640)'],
    ['merchant_not_live', {}, { goLive: false }, 'goLive of the merchant is false (record revision 640)'],
    [
      'ip_not_allowed',
      {},
      { ipAllowlist: compileIpRanges([]) },
      '203.0.113.9 is not in the IP allowlist of the merchant (ranges in the list: 0)',
    ],
    [
      'ip_not_allowed',
      {},
      { ipAllowlist: compileIpRanges(['::/8', '10.0.0.0/9', '10.0.0.0/8']) },
      'not in the IP allowlist of the merchant (ranges in the list: 3)',
    ],
    ['origin_not_allowed', { origin: null }, {}, 'the request has no Origin, Referer or Host'],
    [
      'origin_not_allowed',
      { origin: { header: 'host', value: 'api.example:8443' } },
      {},
      'Host api.example:8443 is not',
    ],
    ['permission_denied', {}, {}, 'the key lacks the permission payouts:write (record revision 812)'],
  ];
  for (const [code, changed, credential, expected] of rows) {
    const seen = { ...facts, clientAddress: address('203.0.113.9'), ...changed };
    t.match(
      reasonOf(code, seen, credential && { ...key, ...credential }, (at) => new Date(at).toISOString()),
      expected,
      code,
    );
  }
  t.end();
});
