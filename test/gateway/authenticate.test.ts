import { createHash, createHmac } from 'node:crypto';
import fc from 'fast-check';
import t from 'tap';
import { checksumIn, generateApiKey, lookupIdOf, pepperOf } from '../../src/gateway/api-key.js';
import { authenticate } from '../../src/gateway/authenticate.js';
import { KeyStoreUnavailable, type KeyStore } from '../../src/gateway/key-store.js';
import type { Credential, RequestFacts } from '../../src/policy/facts.js';
import type { Environment } from '../../src/policy/key-format.js';
import { acceptedFacts, acceptingCredential } from '../policy/fixtures.js';

const anyKey = lookupIdOf('any', null);

const base62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const environments: readonly Environment[] = ['live', 'test'];

/** CRC-32 by its definition, bit by bit. */
function crc32(text: string): number {
  let rest = 0xffffffff;
  for (const byte of Buffer.from(text, 'utf8')) {
    rest ^= byte;
    for (let bit = 0; bit < 8; bit += 1) rest = (rest & 1) === 1 ? (rest >>> 1) ^ 0xedb88320 : rest >>> 1;
  }
  return (rest ^ 0xffffffff) >>> 0;
}

function numberOf(base62Text: string): bigint {
  let value = 0n;
  for (const character of base62Text) value = value * 62n + BigInt(base62.indexOf(character));
  return value;
}

/** Appends the correct checksum to the text, whether or not the result is a key. */
function withChecksum(text: string): string {
  let checksum = '';
  for (let rest = crc32(text); checksum.length < 6; rest = Math.floor(rest / 62)) {
    checksum = base62.charAt(rest % 62) + checksum;
  }
  return text + checksum;
}

t.test('without a pepper the look-up id is the plain hex SHA-256 of the whole key, as any tool computes it', (t) => {
  t.equal(lookupIdOf('abc', null), 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad', 'FIPS 180-2');
  const written = 'svc_live_€é';
  const read = Buffer.from(written).toString('latin1');
  t.equal(
    lookupIdOf(read, null),
    createHash('sha256').update(written).digest('hex'),
    "of the key's bytes, in any encoding",
  );
  t.equal(lookupIdOf(read, pepperOf(Buffer.from('p'))), createHmac('sha256', 'p').update(written).digest('hex'));
  t.equal(lookupIdOf('', null), 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855');
  t.not(lookupIdOf('svc_live_abc', null), lookupIdOf('svc_test_abc', null), 'the prefix is part of the hash');
  t.end();
});

t.test('with a pepper the look-up id is the HMAC-SHA-256 of the key: a stolen store alone is useless', (t) => {
  const vector = '5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843';
  t.equal(lookupIdOf('what do ya want for nothing?', pepperOf(Buffer.from('Jefe'))), vector, 'RFC 4231, case 2');
  const key = generateApiKey('live');
  const ids = ['one', 'two', ''].map((text) => lookupIdOf(key, pepperOf(Buffer.from(text))));
  t.equal(new Set([lookupIdOf(key, null), ...ids]).size, 4, 'a different pepper gives a different id');
  t.end();
});

t.test('a generated key is its prefix, 43 base62 characters for all 256 random bits, and a checksum over both', (t) => {
  t.equal(crc32('123456789'), 0xcbf43926, 'the reference CRC itself is right');
  const sizes: number[] = [];
  fc.assert(
    fc.property(
      fc.uint8Array({ minLength: 32, maxLength: 32 }),
      fc.constantFrom(...environments),
      (bytes, environment) => {
        const key = generateApiKey(environment, (size) => {
          sizes.push(size);
          return Buffer.from(bytes);
        });
        const [, prefix = '', secret = '', checksum = ''] =
          /^(svc_(?:live|test)_)([0-9A-Za-z]{43})([0-9A-Za-z]{6})$/.exec(key) ?? [];
        return (
          prefix === `svc_${environment}_` &&
          numberOf(secret) === BigInt(`0x${Buffer.from(bytes).toString('hex')}`) &&
          numberOf(checksum) === BigInt(crc32(prefix + secret)) &&
          checksumIn(key) === 'right'
        );
      },
    ),
  );
  t.same([...new Set(sizes)], [32], 'exactly 32 random bytes are requested');
  t.end();
});

t.test('the smallest and the largest random number give keys of the same form: leading zeros stay', (t) => {
  const least = generateApiKey('live', (size) => Buffer.alloc(size, 0x00));
  const greatest = generateApiKey('test', (size) => Buffer.alloc(size, 0xff));
  t.equal(least.slice(0, -6), `svc_live_${'0'.repeat(43)}`);
  t.equal(numberOf(greatest.slice(9, -6)), 2n ** 256n - 1n);
  for (const key of [least, greatest]) {
    t.equal(key.length, 58);
    t.equal(checksumIn(key), 'right');
  }
  t.end();
});

t.test('keys come from a real random source: no two alike, and every character occurs', (t) => {
  const keys = Array.from({ length: 500 }, () => generateApiKey('live'));
  t.equal(new Set(keys).size, keys.length);
  t.ok(keys.every((key) => checksumIn(key) === 'right'));
  const seen = new Set(keys.flatMap((key) => Array.from(key.slice(9))));
  t.same(
    Array.from(base62).filter((character) => !seen.has(character)),
    [],
  );
  t.end();
});

t.test(
  'a key with any one character changed is no longer a generated key, so a typo is detected without a look-up',
  (t) => {
    const others = [...Array.from(base62), '_', '-', ' ', 'é', '\u0000'];
    for (const environment of environments) {
      const key = generateApiKey(environment, (size) => Buffer.alloc(size, 0x5a));
      const mistaken: string[] = [];
      for (let at = 0; at < key.length; at += 1) {
        for (const other of others) {
          const changed = key.slice(0, at) + other + key.slice(at + 1);
          if (changed !== key && checksumIn(changed) === 'right') mistaken.push(changed);
        }
      }
      t.same(mistaken, []);
    }
    t.end();
  },
);

t.test('a text with another prefix or length is not a generated key, whatever its checksum', (t) => {
  const secret = 'aZ09'.repeat(11).slice(0, 43);
  t.equal(checksumIn(withChecksum(`svc_live_${secret}`)), 'right', 'the reference generates keys');
  const key = withChecksum(`svc_live_${secret}`);
  const texts = [
    '',
    'svc_live_',
    secret,
    key.slice(9),
    key.slice(0, -1),
    `${key}0`,
    ` ${key}`,
    `${key}\n`,
    key.replace('live', 'test'),
    ...['', 'svc_', 'svc_prod_', 'SVC_LIVE_', 'svc-live-', ' svc_live_', 'xsvc_live_', 'svc_svc_live_'].map((prefix) =>
      withChecksum(prefix + secret),
    ),
    ...[0, 1, 42, 44, 49, 86].map((length) => withChecksum(`svc_live_${secret.repeat(2).slice(0, length)}`)),
  ];
  for (const text of texts) t.not(checksumIn(text), 'right', JSON.stringify(text));
  t.end();
});

t.test('a text with characters outside base62 is not a generated key, even with a correct checksum', (t) => {
  const texts = ['_', '-', ' ', '.', '\n', 'é'].map((character) => withChecksum(`svc_live_${character.repeat(43)}`));
  t.same(texts.filter((text) => checksumIn(text) === 'right').map(encodeURI), []);
  t.end();
});

/** Returns a store whose every look-up has the result of `find`. It adds the id of each look-up to `asked`. */
function storeWith(find: () => Promise<Credential | null>): KeyStore & { readonly asked: string[] } {
  const asked: string[] = [];
  return {
    asked,
    find: async (lookupId) => {
      asked.push(lookupId);
      return { credential: await find(), source: 'store', ageMilliseconds: 0 };
    },
    unavailableReason: () => null,
    close: () => Promise.resolve(),
  };
}

t.test('a request denied without its credential costs no look-up', async (t) => {
  const rows: readonly [string, Partial<RequestFacts>][] = [
    ['https_required', { secure: false }],
    ['tor_blocked', { torExit: true }],
    ['tor_blocked', { onionService: true }],
    ['key_required', { keyFormat: 'absent' }],
    ['key_format', { keyFormat: 'malformed' }],
    ['test_key_in_live', { keyFormat: 'test' }],
    ['live_key_in_test', { environment: 'test', keyFormat: 'live' }],
  ];
  for (const [denial, facts] of rows) {
    const keyStore = storeWith(() => Promise.reject(new KeyStoreUnavailable('down')));
    const verdict = await authenticate({ ...acceptedFacts('live'), ...facts }, anyKey, keyStore);
    t.strictSame(verdict, { denial, credential: null, keyLookup: null });
    t.same(keyStore.asked, [], denial);
  }
});

t.test('a store is queried once, by the hash and never by the key', async (t) => {
  const key = generateApiKey('live');
  for (const pepper of [null, pepperOf(Buffer.from('pepper'))]) {
    const credential = acceptingCredential('live');
    const keyStore = storeWith(() => Promise.resolve(credential));
    const verdict = await authenticate(acceptedFacts('live'), lookupIdOf(key, pepper), keyStore);
    t.equal(verdict.denial, null);
    t.equal(verdict.credential, credential);
    t.same(keyStore.asked, [lookupIdOf(key, pepper)]);
    t.match(keyStore.asked[0], /^[0-9a-f]{64}$/);
  }
});

t.test('a key that the store does not have is denied as unknown', async (t) => {
  for (const environment of environments) {
    const keyStore = storeWith(() => Promise.resolve(null));
    const verdict = await authenticate(acceptedFacts(environment), anyKey, keyStore);
    t.match(verdict, { denial: 'key_unknown', credential: null, keyLookup: { source: 'store' } });
  }
});

t.test('an unavailable store is never a denial: the error is thrown unchanged', async (t) => {
  const failures = [new KeyStoreUnavailable('the store is down'), new TypeError('a defect'), new Error('anything')];
  for (const failure of failures) {
    const rejecting = storeWith(() => Promise.reject(failure));
    const throwing = storeWith(() => {
      throw failure;
    });
    for (const keyStore of [rejecting, throwing]) {
      const outcome = await Promise.resolve()
        .then(() => authenticate(acceptedFacts('live'), anyKey, keyStore))
        .then(
          () => 'decided',
          (error: unknown) => error,
        );
      t.equal(outcome, failure, failure.message);
    }
  }
});

t.test('a record that contradicts the prefix of its key is a damaged store, even if it would deny', async (t) => {
  const key = generateApiKey('live');
  for (const environment of environments) {
    const other = environment === 'live' ? 'test' : 'live';
    for (const keyStatus of ['ACTIVE', 'REVOKED']) {
      const credential = { ...acceptingCredential(environment), environment: other, keyStatus } as const;
      const keyStore = storeWith(() => Promise.resolve(credential));
      const error: unknown = await Promise.resolve()
        .then(() => authenticate(acceptedFacts(environment), lookupIdOf(key, null), keyStore))
        .then(
          () => 'decided',
          (reason: unknown) => reason,
        );
      t.ok(error instanceof KeyStoreUnavailable, `${environment} ${keyStatus}`);
      t.match(String(error), /key-1/, 'the error names the record');
      t.notOk(
        String(error).includes(key) || String(error).includes(lookupIdOf(key, null)),
        'the error does not contain the key',
      );
    }
  }
});

t.test("a denial after the look-up still has the key's owner, for the log", async (t) => {
  const rows: readonly [string, Partial<Credential>][] = [
    ['key_inactive', { keyStatus: 'REVOKED' }],
    ['key_inactive', { expiresAt: acceptedFacts('live').now }],
    ['merchant_inactive', { merchantStatus: 'SUSPENDED' }],
    ['merchant_not_live', { goLive: false }],
    ['ip_not_allowed', { ipAllowlist: { contains: () => false, admits: () => false, size: 0 } }],
    ['origin_not_allowed', { originAllowlist: { matches: () => false } }],
    ['permission_denied', { permissions: { entries: [], allow: () => false } }],
  ];
  for (const [denial, part] of rows) {
    const credential = { ...acceptingCredential('live'), ...part };
    const keyStore = storeWith(() => Promise.resolve(credential));
    const verdict = await authenticate(acceptedFacts('live'), anyKey, keyStore);
    t.equal(verdict.denial, denial);
    t.equal(verdict.credential, credential, denial);
  }
});
