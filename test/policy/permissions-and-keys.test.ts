import fc from 'fast-check';
import t from 'tap';
import { keyFormatOf, keyPrefixes } from '../../src/policy/key-format.js';
import type { KeyFormat } from '../../src/policy/key-format.js';
import { accessOf, compilePermissions, InvalidPermission } from '../../src/policy/permissions.js';
import type { Access } from '../../src/policy/permissions.js';

t.test('GET and HEAD read; every other method, known or not, writes', (t) => {
  for (const method of ['GET', 'HEAD']) t.equal(accessOf(method), 'read', method);
  const writing = ['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT', 'PROPFIND', 'QUERY'];
  for (const method of [...writing, 'get', 'head', 'Get', 'GET ', ' GET', 'GETX', 'XGET', '']) {
    t.equal(accessOf(method), 'write', JSON.stringify(method));
  }
  t.end();
});

t.test('a key may do exactly what its permissions allow', (t) => {
  const requests: readonly (readonly [string, Access])[] = [
    ['payouts', 'read'],
    ['payouts', 'write'],
    ['customers', 'read'],
    ['customers', 'write'],
  ];
  const table: readonly (readonly [permissions: readonly string[], allowed: readonly boolean[]])[] = [
    [[], [false, false, false, false]],
    [['*'], [true, true, true, true]],
    [['payouts:*'], [true, true, false, false]],
    [['payouts:read'], [true, false, false, false]],
    [['payouts:write'], [false, true, false, false]],
    [
      ['payouts:read', 'payouts:write'],
      [true, true, false, false],
    ],
    [
      ['payouts:read', 'customers:write'],
      [true, false, false, true],
    ],
    [
      ['payouts:write', 'customers:*'],
      [false, true, true, true],
    ],
    [
      ['payouts:read', '*'],
      [true, true, true, true],
    ],
    [
      ['*', 'payouts:read'],
      [true, true, true, true],
    ],
    [
      ['payouts:read', 'payouts:read'],
      [true, false, false, false],
    ],
    [
      ['payout:*', 'payoutss:*', 'x-payouts:*', 'payouts-x:*'],
      [false, false, false, false],
    ],
  ];
  for (const [entries, allowed] of table) {
    const permissions = compilePermissions(entries);
    const decisions = requests.map(([resource, access]) => permissions.allow(resource, access));
    t.strictSame(decisions, allowed, `[${entries.join()}]`);
  }
  t.end();
});

t.test('a resource name cannot imitate a permission', (t) => {
  const permissions = compilePermissions(['payouts:*', 'customers:read']);
  for (const resource of ['', '*', 'payouts:read', 'payouts:*', 'PAYOUTS', 'payouts ', '__proto__', 'constructor']) {
    t.notOk(permissions.allow(resource, 'read'), JSON.stringify(resource));
    t.notOk(permissions.allow(resource, 'write'), JSON.stringify(resource));
  }
  t.end();
});

t.test('a permission is a star, or a resource with :*, :read or :write; anything else is rejected', (t) => {
  const longest = `a${'b'.repeat(63)}`;
  for (const entry of ['*', 'a:*', 'payouts:read', 'bank-accounts:write', 'v2:read', 'a-:read', `${longest}:read`]) {
    t.doesNotThrow(() => compilePermissions([entry]), entry);
  }
  const wrong = [
    ...['', ' ', '**', '*:*', '*:read', '* ', ' *', 'payouts', 'payouts:', ':read', ':*', ':', 'payouts:**'],
    ...['payouts:delete', 'payouts:READ', 'Payouts:read', 'PAYOUTS:*', 'payouts: read', ' payouts:read'],
    ...['payouts:read ', 'payouts:read\n', 'payouts:read,write', 'payouts:read:write', 'payouts.read', 'payouts/read'],
    ...['1payouts:read', '-payouts:read', 'pay_outs:read', 'pay outs:read', 'p\u{e0}youts:read', 'payouts:readx'],
    ...['payouts:xread', 'x\npayouts:read', `${longest}b:read`, 'payouts:*\0'],
  ];
  for (const entry of wrong) {
    t.throws(() => compilePermissions([entry]), { name: 'InvalidPermission', entry }, JSON.stringify(entry));
    t.throws(
      () => compilePermissions(['*', entry]),
      { name: 'InvalidPermission', entry },
      `*, ${JSON.stringify(entry)}`,
    );
  }
  t.throws(() => compilePermissions(['payouts:read', 'first', 'second']), {
    entry: 'first',
    message:
      '"first" is not a permission: expected * or a resource followed by :*, :read or :write, such as payouts:write',
  });
  t.throws(() => compilePermissions(['x'.repeat(100_000)]), { message: new RegExp(`^"x{64}" is not a permission`) });
  t.end();
});

t.test('a permission list throws only its own error, and no text grants access by accident', (t) => {
  const text = fc.oneof(
    fc.string(),
    fc.string({ unit: 'binary' }),
    fc.string({ unit: fc.constantFrom('payouts', ':', '*', 'read', 'write', ' ', 'a', '-') }),
  );
  fc.assert(
    fc.property(text, text, fc.constantFrom<Access>('read', 'write'), (entry, resource, access) => {
      try {
        const expected = ['*', `${resource}:*`, `${resource}:${access}`].includes(entry);
        return compilePermissions([entry]).allow(resource, access) === expected;
      } catch (error) {
        return error instanceof InvalidPermission && error.entry === entry;
      }
    }),
    { numRuns: 3000 },
  );
  t.end();
});

t.test('exactly one header that starts with a prefix, in exact case, is a key', (t) => {
  const live = 'svc_live_0123456789abcdef';
  const test = 'svc_test_0123456789abcdef';
  const table: readonly (readonly [values: readonly string[], format: KeyFormat])[] = [
    [[], 'absent'],
    [[''], 'absent'],
    [[live], 'live'],
    [[test], 'test'],
    [['svc_live_'], 'live'],
    [['svc_test_'], 'test'],
    [['svc_live_svc_test_x'], 'live'],
    [['svc_test_svc_live_x'], 'test'],
    [[live, live], 'malformed'],
    [[live, test], 'malformed'],
    [[test, live], 'malformed'],
    [[live, ''], 'malformed'],
    [['', live], 'malformed'],
    [['', ''], 'malformed'],
    [['', test, ''], 'malformed'],
    [[live.toUpperCase()], 'malformed'],
    [['Svc_live_x'], 'malformed'],
    [['svc_Live_x'], 'malformed'],
    [['svc_TEST_x'], 'malformed'],
    [['svc_live'], 'malformed'],
    [['svc_test'], 'malformed'],
    [['svc_livex'], 'malformed'],
    [['svc-live-x'], 'malformed'],
    [['svc_prod_x'], 'malformed'],
    [['svc__live_x'], 'malformed'],
    [[` ${live}`], 'malformed'],
    [[`x${live}`], 'malformed'],
    [[`x${test}`], 'malformed'],
    [[`Bearer ${live}`], 'malformed'],
    [[`"${live}"`], 'malformed'],
    [['\u{feff}svc_live_x'], 'malformed'],
    [[' '], 'malformed'],
    [['null'], 'malformed'],
    [['undefined'], 'malformed'],
    [['*'], 'malformed'],
  ];
  for (const [values, format] of table) t.equal(keyFormatOf(values), format, JSON.stringify(values));
  t.end();
});

t.test('the prefixes are those of the contract', (t) => {
  t.strictSame(keyPrefixes, { live: 'svc_live_', test: 'svc_test_' });
  t.end();
});

t.test('for any headers, the key format is the one defined by the contract', (t) => {
  const value = fc.oneof(
    fc.string(),
    fc.string({ unit: fc.constantFrom('svc_', 'live_', 'test_', 'SVC_', ' ', 'x') }),
    fc.string().map((key) => `svc_live_${key}`),
    fc.string().map((key) => `svc_test_${key}`),
  );
  fc.assert(
    fc.property(fc.array(value, { maxLength: 3 }), (values) => {
      const [only = ''] = values;
      const prefixed: KeyFormat = only.startsWith('svc_live_')
        ? 'live'
        : only.startsWith('svc_test_')
          ? 'test'
          : 'malformed';
      const expected = values.length > 1 ? 'malformed' : only === '' ? 'absent' : prefixed;
      return keyFormatOf(values) === expected;
    }),
    { numRuns: 2000 },
  );
  t.end();
});
