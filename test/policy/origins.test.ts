import fc from 'fast-check';
import t from 'tap';
import { namesOnionService } from '../../src/policy/origins.js';
import { compileOriginPatterns, InvalidOriginPattern } from '../../src/policy/origin-patterns.js';
import type { OriginClaim } from '../../src/policy/origins.js';

type Header = OriginClaim['header'];

/** Entries that admit nothing tested here: they make a list long enough to be stored as a set. */
const more = Array.from({ length: 100 }, (_, index) => `unasked-${index}.invalid`);

/** Whether a list admits the value of one header. Throws if its short and its long form decide differently. */
function admits(entries: readonly string[], header: Header, value: string): boolean {
  const admitted = compileOriginPatterns(entries).matches({ header, value });
  const admittedByLong = compileOriginPatterns([...entries, ...more]).matches({ header, value });
  if (admitted !== admittedByLong)
    throw new Error(`the long form of ${entries.join()} decides differently on ${value}`);
  return admitted;
}

t.test('an empty list admits nothing, and no list admits an empty host', (t) => {
  for (const entries of [[], ['shop.example'], ['shop.example', '*.a.example']]) {
    for (const host of ['.', '..', '', 'localhost', '[::1]']) {
      t.notOk(admits(entries, 'host', host), `${entries.join()} refuses the host "${host}"`);
      t.notOk(admits(entries, 'origin', `https://${host}`), `${entries.join()} refuses the origin of "${host}"`);
      t.notOk(admits(entries, 'referer', `https://${host}/`), `${entries.join()} refuses the referer of "${host}"`);
    }
  }
  t.end();
});

/** An entry, with the Origins that it admits and refuses. */
type Row = readonly [entry: string, admitted: readonly string[], refused: readonly string[]];

t.test('a host admits itself over both schemes on their default ports, and no similar host', (t) => {
  const refused = [
    ...['null', '', '*', 'https://', 'https://evil.example', 'https://evilshop.example'],
    ...['https://shop.example.evil.test', 'https://a.shop.example', 'https://example', 'https://shop-example'],
    ...['https://shopxexample', 'https://hop.example', 'https://shop.example:8443', 'https://shop.example:80'],
    ...['http://shop.example:443', 'https://shop.example:0', 'ftp://shop.example', 'ws://shop.example'],
    ...['app://shop.example', 'file:///shop.example', 'httpss://shop.example'],
  ];
  const rows: readonly Row[] = [
    ['shop.example', ['https://shop.example', 'http://shop.example'], refused],
    ['localhost', ['https://localhost', 'http://localhost'], ['https://localhost.example', 'https://a.localhost']],
    ['192.0.2.7', ['https://192.0.2.7'], ['https://192.0.2.8', 'https://1.192.0.2.7']],
    ['[2001:db8::7]', ['https://[2001:db8::7]', 'https://[2001:DB8:0::7]:443'], ['https://[2001:db8::8]']],
    ['[::1]:8443', ['https://[::1]:8443'], ['https://[::1]']],
  ];
  for (const [entry, admitted, others] of rows) {
    for (const origin of admitted) t.ok(admits([entry], 'origin', origin), `${entry} admits ${origin}`);
    for (const origin of others) t.notOk(admits([entry], 'origin', origin), `${entry} refuses ${origin}`);
  }
  t.end();
});

t.test('a wildcard admits subdomains at any depth, but neither the apex nor a name with the same ending', (t) => {
  const rows: readonly Row[] = [
    [
      '*.shop.example',
      ['https://a.shop.example', 'http://a.shop.example', 'https://a.b.c.d.shop.example', 'https://A.SHOP.EXAMPLE.'],
      [
        ...['https://shop.example', 'https://evilshop.example', 'https://evil-shop.example', 'https://.shop.example'],
        ...['https://a.shop.example.evil.test', 'https://shop.example.a', 'https://a.example', 'https://example'],
        ...['https://a.shop.example:8443', 'ftp://a.shop.example', 'null'],
      ],
    ],
    ['*.a.shop.example', ['https://b.a.shop.example'], ['https://a.shop.example', 'https://b.shop.example']],
    ['*.example', ['https://shop.example', 'https://a.shop.example'], ['https://example', 'https://shopexample']],
    ['https://*.shop.example', ['https://a.shop.example'], ['http://a.shop.example', 'https://shop.example']],
    ['http://*.shop.example', ['http://a.shop.example'], ['https://a.shop.example', 'http://shop.example']],
    ['*.shop.example:8443', ['https://a.b.shop.example:8443'], ['https://a.shop.example', 'https://shop.example:8443']],
    ['https://*.shop.example:8443', ['https://a.shop.example:8443'], ['http://a.shop.example:8443']],
    ['*.shop1', ['https://a.shop1'], ['https://shop1', 'https://shop']],
  ];
  for (const [entry, admitted, refused] of rows) {
    for (const origin of admitted) t.ok(admits([entry], 'origin', origin), `${entry} admits ${origin}`);
    for (const origin of refused) t.notOk(admits([entry], 'origin', origin), `${entry} refuses ${origin}`);
  }
  t.end();
});

t.test('a scheme or a port in an entry is required; a default port equals no port', (t) => {
  const rows: readonly Row[] = [
    ['https://shop.example', ['https://shop.example', 'https://shop.example:443'], ['http://shop.example']],
    ['http://shop.example', ['http://shop.example', 'http://shop.example:80'], ['https://shop.example']],
    ['https://shop.example:443', ['https://shop.example'], ['http://shop.example', 'http://shop.example:443']],
    ['http://shop.example:80', ['http://shop.example'], ['https://shop.example', 'https://shop.example:80']],
    ['https://shop.example:80', ['https://shop.example:80'], ['http://shop.example', 'https://shop.example']],
    ['shop.example:443', ['https://shop.example', 'http://shop.example:443'], ['http://shop.example']],
    ['shop.example:80', ['http://shop.example', 'https://shop.example:80'], ['https://shop.example']],
    ['shop.example:8443', ['https://shop.example:8443', 'http://shop.example:8443'], ['https://shop.example']],
    ['shop.example:1', ['https://shop.example:1'], ['https://shop.example:11', 'https://shop.example']],
    ['shop.example:65535', ['https://shop.example:65535'], ['https://shop.example:6553', 'https://shop.example']],
    ['HTTPS://Shop.Example:443', ['https://shop.example'], ['http://shop.example']],
  ];
  for (const [entry, admitted, refused] of rows) {
    for (const origin of admitted) t.ok(admits([entry], 'origin', origin), `${entry} admits ${origin}`);
    for (const origin of refused) t.notOk(admits([entry], 'origin', origin), `${entry} refuses ${origin}`);
  }
  t.end();
});

t.test('case, punycode and a trailing dot make no difference, on either side', (t) => {
  const spellings = [
    ['shop.example', 'SHOP.example', 'Shop.Example.', 'shop.example.', 'SHOP.EXAMPLE:443'],
    ['b\u{fc}cher.example', 'xn--bcher-kva.example', 'B\u{dc}CHER.example', 'XN--BCHER-KVA.EXAMPLE.'],
  ];
  for (const group of spellings) {
    for (const entry of group) {
      for (const spelled of group) {
        const host = spelled.replace(':443', '');
        t.ok(admits([entry], 'origin', `https://${spelled}`), `${entry} admits Origin https://${spelled}`);
        t.ok(admits([entry], 'origin', `HTTPS://${spelled}`), `${entry} admits Origin HTTPS://${spelled}`);
        t.ok(admits([entry], 'referer', `HTTPS://${spelled}/cart`), `${entry} admits Referer HTTPS://${spelled}/cart`);
        t.ok(admits([entry], 'host', spelled), `${entry} admits Host ${spelled}`);
        t.ok(admits([`*.${entry}`], 'origin', `https://A.${host}`), `*.${entry} admits Origin https://A.${host}`);
      }
    }
  }
  t.notOk(admits(['b\u{fc}cher.example'], 'origin', 'https://bucher.example'), 'a look-alike is another host');
  t.notOk(admits(['shop.example'], 'origin', 'https://sh\u{43e}p.example'), 'a Cyrillic look-alike is another host');
  t.end();
});

t.test('an Origin is a scheme, a host and an optional port; with anything more it matches nothing', (t) => {
  const hostile = [
    ...['https://shop.example/', 'https://shop.example/path', 'https://shop.example?q', 'https://shop.example#f'],
    ...['https://user@shop.example', 'https://user:secret@shop.example', 'https://@shop.example'],
    ...['https://evil@shop.example', 'https://shop.example@evil.test', 'https://shop.example\\'],
    ...['https://shop.example\\@evil.test', 'https:\\\\shop.example', 'https:shop.example', 'https:/shop.example'],
    ...['https:///shop.example', '//shop.example', 'shop.example', 'shop.example:443', ' https://shop.example'],
    ...['https://shop.example ', 'https://sh op.example', 'https://shop.example, https://shop.example'],
    ...['https://evil.test https://shop.example', 'https://shop.example\t', 'https://sh\top.example'],
    ...['https://sh%6fp.example', 'https://shop.example%00.evil.test', 'https://shop.example:443:443'],
    ...['https://shop.example:https', 'https://shop.example:65536', 'https://shop.example:-1', 'null', 'NULL'],
    ...['undefined', 'blob:https://shop.example', 'data:text/html,shop.example', 'about:blank', '*', ''],
  ];
  for (const origin of hostile) t.notOk(admits(['shop.example'], 'origin', origin), JSON.stringify(origin));
  t.end();
});

t.test('Origin null matches nothing, not even an entry "null"', (t) => {
  for (const entry of ['null', 'https://null', '*.null', 'shop.example'])
    t.notOk(admits([entry], 'origin', 'null'), entry);
  t.end();
});

t.test('a Referer counts by its scheme, host and port; with a user name it matches nothing', (t) => {
  const admitted = [
    ...['https://shop.example', 'https://shop.example/', 'http://shop.example/a/b?c=d#e', 'https://shop.example:443/x'],
    ...['https://shop.example?next=https://evil.test/', 'https://shop.example/@evil.test'],
    ...['https://shop.example#@evil.test'],
  ];
  const refused = [
    ...['https://evil.test/', 'https://evil.test/https://shop.example/', 'https://evil.test/?shop.example'],
    ...['https://evil.test#shop.example', 'https://evil.test#@shop.example', 'https://evil.test\\@shop.example/'],
    ...['https://shop.example@evil.test/', 'https://shop.example:443@evil.test/', 'https://user@shop.example/'],
    ...['https://user:secret@shop.example/', 'https://:secret@shop.example/', 'https://shop.example.evil.test/'],
    ...['https://a.shop.example/', 'https://evilshop.example/', 'https://shop.example:8443/', 'ftp://shop.example/'],
    ...['app://shop.example/', 'blob:https://shop.example/1', 'view-source:https://shop.example/', 'about:client'],
    ...['javascript://shop.example/', '//shop.example/', '/shop.example', 'shop.example', 'shop.example/', '', 'null'],
    ...['*', ' https://shop.example/', 'https:shop.example/', 'https://', 'https://[', 'https://%'],
    ...['https://shop.example:x/'],
  ];
  for (const value of admitted) t.ok(admits(['shop.example'], 'referer', value), `admits ${JSON.stringify(value)}`);
  for (const value of refused) t.notOk(admits(['shop.example'], 'referer', value), `refuses ${JSON.stringify(value)}`);
  t.notOk(admits(['https://shop.example'], 'referer', 'http://shop.example/'), 'the scheme of an entry is required');
  t.ok(admits(['*.shop.example'], 'referer', 'https://a.shop.example/x'), 'a wildcard admits a subdomain');
  t.ok(admits(['shop.example'], 'referer', `https://shop.example/${'a'.repeat(8_000)}`), 'a long path is allowed');
  t.end();
});

t.test('a Host is a host and an optional port, taken as https', (t) => {
  const admitted = ['shop.example', 'SHOP.EXAMPLE', 'shop.example:443', 'shop.example.', 'shop.example.:443'];
  const refused = [
    ...['shop.example:80', 'shop.example:8443', 'a.shop.example', 'evilshop.example', 'shop.example.evil.test'],
    ...['example', 'https://shop.example', '//shop.example', 'shop.example/', 'shop.example/path', 'shop.example?q'],
    ...['shop.example#', 'user@shop.example', '@shop.example', 'evil.test@shop.example', 'evil.test\\@shop.example'],
    ...['shop.example\\', 'shop.example, shop.example', 'shop.example shop.example', ' shop.example', 'shop.example '],
    ...['sh\top.example', 'sh%6fp.example', 'shop.example:443:443', 'shop.example:x', ':443', '', '.', '*', '['],
    ...['[shop.example]', 'null'],
  ];
  for (const value of admitted) t.ok(admits(['shop.example'], 'host', value), `admits ${JSON.stringify(value)}`);
  for (const value of refused) t.notOk(admits(['shop.example'], 'host', value), `refuses ${JSON.stringify(value)}`);
  t.ok(admits(['https://shop.example'], 'host', 'shop.example'), 'an https entry admits it');
  t.notOk(admits(['http://shop.example'], 'host', 'shop.example'), 'an http entry does not admit it');
  t.ok(admits(['shop.example:8443'], 'host', 'shop.example:8443'), 'the port of an entry must equal that of the Host');
  t.ok(admits(['*.shop.example'], 'host', 'a.shop.example'), 'a wildcard admits a subdomain');
  t.ok(admits(['[::1]'], 'host', '[::1]:443'), 'an IPv6 host');
  t.end();
});

t.test('an empty list admits no client; a list admits what any of its entries admits', (t) => {
  for (const header of ['origin', 'referer', 'host'] as const) {
    for (const value of ['https://shop.example', 'shop.example', 'null', '', '*']) {
      t.notOk(admits([], header, value), `${header} ${JSON.stringify(value)}`);
    }
  }
  const entries = ['one.example', '*.two.example', 'https://three.example:8443', 'one.example'];
  for (const origin of ['https://one.example', 'https://a.two.example', 'https://three.example:8443']) {
    t.ok(admits(entries, 'origin', origin), origin);
  }
  for (const origin of [
    'https://two.example',
    'https://three.example',
    'https://a.one.example',
    'https://one.example:8443',
  ]) {
    t.notOk(admits(entries, 'origin', origin), origin);
  }
  t.end();
});

/** For each claim, whether an entry admits it; an empty list if the entry is rejected. */
function matchesOf(entry: string, claims: readonly OriginClaim[]): boolean[] {
  try {
    const patterns = compileOriginPatterns([entry]);
    return claims.map((claim) => patterns.matches(claim));
  } catch {
    return [];
  }
}

t.test('an entry of another form is rejected, never read as a wider one', (t) => {
  const wrong = [
    ...['', ' ', '*', '*.', '*.*', '**', '*.*.shop.example', '*shop.example', 'shop.*', 'a.*.shop.example'],
    ...['**.shop.example', 'https://*', '*:443', '*.1.2.3.4', '*.127.1', '*.0x1', '*.[::1]'],
    ...['https://*.192.0.2.7:8443', '*.2.3.4', 'shop.example/', 'https://shop.example/', 'shop.example/path'],
    ...['shop.example?q', 'shop.example#f', '/', '.', 'user@shop.example', 'https://user:secret@shop.example'],
    ...['shop.example\\', 'shop\\example', '%73hop.example', 'ftp://shop.example', 'ws://shop.example'],
    ...['//shop.example', '://shop.example', 'https:shop.example', 'https://', 'https://https://shop.example'],
    ...['shop.example:', 'shop.example:0', 'shop.example:00000', 'shop.example:65536', 'shop.example:99999'],
    ...['shop.example:000443', 'shop.example:123456', 'shop.example:x', 'shop.example:-1', 'shop.example:443:443'],
    ...[':443', ' shop.example', 'shop.example ', 'shop.example\n', 'sh op.example', 'a.example b.example', '::1'],
    ...['2001:db8::1', '[::1', '::1]', '[]', '[shop.example]', '[1.2.3.4]', '[::1%25eth0]', '[::1]x', '256.1.1.1'],
    ...['shop|example', 'shop<example', 'shop^example'],
  ];
  for (const entry of wrong) {
    t.throws(() => compileOriginPatterns([entry]), { name: 'InvalidOriginPattern', entry }, JSON.stringify(entry));
  }
  // Some versions of Node reject the punycode `xn--a` as invalid. In the others, it matches only itself.
  const claims = ['xn--a', 'a', 'shop.example'].map((host) => ({ header: 'host' as const, value: host }));
  t.ok([[], [true, false, false]].some((one) => JSON.stringify(one) === JSON.stringify(matchesOf('xn--a', claims))));
  t.throws(() => compileOriginPatterns(['shop.example', 'first/', 'second/']), {
    entry: 'first/',
    message:
      '"first/" is not an origin: expected a host such as shop.example or *.shop.example, ' +
      'optionally with http:// or https:// before it and a port after it',
  });
  t.throws(() => compileOriginPatterns(['/'.repeat(100_000)]), { message: /^"\/{64}" is not an origin: / });
  t.end();
});

t.test('a trailing control character, which URL parsers strip, makes a host invalid', (t) => {
  for (const character of ['\0', '\u{1}', '\u{1f}']) {
    const name = JSON.stringify(character);
    const entry = `shop.example${character}`;
    t.throws(() => compileOriginPatterns([entry]), { name: 'InvalidOriginPattern', entry }, `${name} in an entry`);
    t.notOk(admits(['shop.example'], 'origin', `https://shop.example${character}`), `${name} in Origin`);
    t.notOk(admits(['shop.example'], 'host', `shop.example${character}`), `${name} in Host`);
  }
  t.end();
});

t.test('an onion service is recognized in Host, Origin and Referer', (t) => {
  const onion = [
    ...['abc.onion', 'ABC.ONION', 'abc.Onion.', 'abc.onion:443', 'abc.onion.:8443', 'a.b.abc.onion'],
    ...['xn--bcher-kva.onion', 'http://abc.onion', 'https://abc.onion', 'HTTPS://ABC.ONION:8443'],
    ...['https://abc.onion./', 'ws://abc.onion', 'http://abc.onion/path?query#fragment'],
    ...['https://abc.onion?shop.example', 'https://abc.onion#shop.example', 'https://user@abc.onion/'],
    ...['https://user:secret@abc.onion/', 'https://shop.example@abc.onion/', 'user@abc.onion'],
    ...['https://abc.onion\\@shop.example/', 'app://abc.onion', '//abc.onion/', 'abc.onion/path'],
    ...['https://abc.oni%6fn', 'abc%2Eonion', 'https://abc%2eonion%2e/', 'b\u{fc}cher.onion', 'abc\u{3002}onion'],
    ...['.onion'],
  ];
  for (const value of onion) t.equal(namesOnionService([value]), true, JSON.stringify(value));
  t.end();
});

t.test('a value that mentions .onion but is not a valid URL counts as an onion service', (t) => {
  for (const value of [
    'abc.onion:99999',
    'https://abc.onion:x/',
    'abc .onion',
    'abc.ONION%00',
    'https://[abc.onion',
    ' abc.onion',
  ]) {
    t.equal(namesOnionService([value]), true, JSON.stringify(value));
  }
  t.end();
});

t.test('no spelling that a URL parser normalizes hides an onion service', (t) => {
  const disguised = [
    ['https://abc.on\tion/', 'a tab, which URL parsers strip'],
    ['https://abc.on\u{ad}ion/', 'a soft hyphen, which IDNA removes'],
    ['https://abc.\u{ba}ni\u{ba}n/', 'ordinal indicators, which IDNA maps to "o"'],
    ['abc.\u{ba}nion', 'an ordinal indicator in Host'],
    ['app://ABC.ONION', 'upper case with a scheme whose hosts URL parsers do not normalize'],
    ['abc.onion..', 'two trailing dots'],
  ] as const;
  for (const [value, how] of disguised) t.equal(namesOnionService([value]), true, `${how}: ${JSON.stringify(value)}`);
  t.end();
});

t.test('only a host that ends in .onion is an onion service', (t) => {
  const others = [
    ...['', 'null', '*', 'onion', 'https://onion', 'shop.example', 'https://shop.example', 'onion.example'],
    ...['abc.onion.example', 'abconion', 'abc-onion', 'abc.onions', 'abc.xonion', 'https://onionshop.example'],
    ...['https://shop.example/abc.onion', 'https://shop.example/?q=abc.onion', 'https://shop.example#abc.onion'],
    ...['https://abc.onion@shop.example/', 'https://shop.example/%', 'https://shop.example/100%25', '%', '%zz'],
    ...['https://%/', '[', 'https://'],
  ];
  for (const value of others) t.equal(namesOnionService([value]), false, JSON.stringify(value));
  t.end();
});

type Scheme = 'http' | 'https';
const scheme = fc.constantFrom<Scheme>('http', 'https');
const hostName = fc
  .array(fc.constantFrom('shop', 'evilshop', 'a', 'example', 'test'), { minLength: 1, maxLength: 4 })
  .map((labels) => labels.join('.'));
const port = fc.constantFrom(null, 80, 443, 8443);
const entryParts = fc.record({ scheme: fc.option(scheme), wildcard: fc.boolean(), host: hostName, port });
const dressing = fc.record({ upperCase: fc.boolean(), trailingDot: fc.boolean() });

/** A host in one of the equivalent spellings. */
function dressed(host: string, { upperCase, trailingDot }: { upperCase: boolean; trailingDot: boolean }): string {
  return (upperCase ? host.toUpperCase() : host) + (trailingDot ? '.' : '');
}

const portText = (port: number | null): string => (port === null ? '' : `:${port}`);
const defaultPort = (scheme: Scheme): number => (scheme === 'https' ? 443 : 80);

t.test('for any entries, a claim is admitted exactly when scheme, host and port match an entry', (t) => {
  let admitted = 0;
  const claim = fc.record({
    scheme,
    host: hostName,
    port,
    header: fc.constantFrom<Header>('origin', 'referer', 'host'),
  });
  fc.assert(
    fc.property(
      fc.array(entryParts, { maxLength: 5 }),
      claim,
      fc.boolean(),
      dressing,
      dressing,
      (parts, claim, near, d, e) => {
        const nearest = parts[0];
        const host = near && nearest !== undefined ? nearest.host : claim.host;
        const claimedScheme = claim.header === 'host' ? 'https' : claim.scheme;
        const expected = parts.some(
          (entry) =>
            (entry.scheme === null || entry.scheme === claimedScheme) &&
            (entry.wildcard
              ? host.length > entry.host.length && host.endsWith(`.${entry.host}`)
              : host === entry.host) &&
            (claim.port ?? defaultPort(claimedScheme)) === (entry.port ?? defaultPort(claimedScheme)),
        );
        if (expected) admitted += 1;
        const entries = parts.map(({ scheme, wildcard, host, port }) => {
          return `${scheme === null ? '' : `${scheme}://`}${wildcard ? '*.' : ''}${dressed(host, d)}${portText(port)}`;
        });
        const authority = dressed(host, e) + portText(claim.port);
        const value = {
          origin: `${claim.scheme}://${authority}`,
          referer: `${claim.scheme}://${authority}/a?b=c`,
          host: authority,
        }[claim.header];
        return admits(entries, claim.header, value) === expected;
      },
    ),
    { numRuns: 10_000 },
  );
  t.ok(admitted > 250, `some were admitted: ${admitted}`);
  t.end();
});

/** Texts that resemble origins, and arbitrary strings. */
const hostileText = fc.oneof(
  fc.string(),
  fc.string({ unit: 'binary' }),
  fc.string({
    unit: fc.constantFrom(
      'https',
      'http',
      ':',
      '/',
      '//',
      '*',
      '.',
      'shop',
      'onion',
      '@',
      '%',
      '[',
      ']',
      '::1',
      '443',
      '\\',
      '#',
      '?',
      ' ',
      'xn--',
    ),
  }),
);

t.test('no text makes a list or the onion rule throw, and an entry throws only its own error', (t) => {
  const patterns = compileOriginPatterns(['shop.example', '*.shop.example', '[::1]:8443']);
  fc.assert(
    fc.property(hostileText, fc.constantFrom<Header>('origin', 'referer', 'host'), (text, header) => {
      patterns.matches({ header, value: text });
      namesOnionService([text]);
      try {
        compileOriginPatterns([text]).matches({ header, value: text });
      } catch (error) {
        return error instanceof InvalidOriginPattern && error.entry === text;
      }
      return true;
    }),
    { numRuns: 4000 },
  );
  t.end();
});

t.test('a claim for another host is never admitted, whatever is added to it', (t) => {
  const host = fc.constantFrom('evil.test', 'evilshop.example', 'shop.example.evil.test', 'example');
  fc.assert(
    fc.property(host, hostileText, scheme, (host, text, scheme) => {
      const entries = ['shop.example', '*.shop.example'];
      return (
        !admits(entries, 'origin', `${scheme}://${host}/${text}`) &&
        !admits(entries, 'referer', `${scheme}://${host}/${text}`) &&
        !admits(entries, 'host', `${host}/${text}`)
      );
    }),
    { numRuns: 2000 },
  );
  t.end();
});

t.test('earlier claims make no difference', (t) => {
  const entries = ['shop.example', 'https://*.pay.example:8443'];
  const values = [
    'https://shop.example',
    'shop.example',
    'http://shop.example/a',
    'https://a.pay.example:8443',
    'null',
    '',
  ];
  const claim = fc.record({
    header: fc.constantFrom('origin' as const, 'referer' as const, 'host' as const),
    value: fc.constantFrom(...values),
  });
  const asked = compileOriginPatterns(entries);
  fc.assert(
    fc.property(claim, (one) => asked.matches(one) === compileOriginPatterns(entries).matches(one)),
    { numRuns: 500, seed: 1 },
  );
  t.end();
});
