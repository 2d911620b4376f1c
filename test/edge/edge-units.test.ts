import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import t from 'tap';
import { denialFailure, errorFailure } from '../../src/edge/response/replies.js';
import { GatewayError } from '../../src/edge/request/errors.js';
import { gatewayErrors } from '../../src/policy/gateway-errors.js';
import type { GatewayErrorCode } from '../../src/policy/gateway-errors.js';
import { requireProtocol } from '../../src/edge/request/protocol.js';
import {
  readDecisiveHeaders,
  RequestData,
  hasFixedSegments,
  splitTarget,
} from '../../src/edge/request/request-data.js';
import { requestIdOf } from '../../src/edge/request/trace-context.js';
import { containsKey } from '../../src/telemetry/mask-keys.js';
import { forwardableHeaders, returnableHeaders } from '../../src/edge/request/reserved-headers.js';
import { denials } from '../../src/policy/decision-table.js';
import type { DenialCode } from '../../src/policy/decision-table.js';

/** Headers as pairs of name and value. `flat` returns them in Node's raw form, a flat list of names and values. */
type Pairs = readonly (readonly [string, string])[];
const flat = (pairs: Pairs): string[] => pairs.flat();

t.test('every value of a security-relevant header is found, in order and in any case of its name', (t) => {
  const headers = readDecisiveHeaders(
    flat([
      ['X-Api-Key', 'one'],
      ['Host', 'a.example'],
      ['x-api-key', 'two'],
      ['X-FORWARDED-FOR', '1.1.1.1'],
      ['Accept', '*/*'],
      ['host', 'b.example'],
      ['x-Forwarded-For', '2.2.2.2, 3.3.3.3'],
      ['ORIGIN', 'https://shop.example'],
      ['Referer', ''],
      ['X-Forwarded-Proto', 'https'],
      ['X-Request-ID', 'abc'],
      ['X-API-KEY', ''],
    ]),
  );
  t.strictSame(headers, {
    apiKey: ['one', 'two', ''],
    host: ['a.example', 'b.example'],
    origin: ['https://shop.example'],
    referer: [''],
    forwardedFor: ['1.1.1.1', '2.2.2.2, 3.3.3.3'],
    forwardedProto: ['https'],
    requestId: ['abc'],
    transferEncoding: [],
    contentLength: [],
    expect: [],
    upgrade: [],
    userAgent: [],
    traceparent: [],
    tracestate: [],
  });
  t.end();
});

t.test('only the exact header name matches: no look-alike, no value, no other header', (t) => {
  const noHeaders = {
    apiKey: [],
    host: [],
    origin: [],
    referer: [],
    forwardedFor: [],
    forwardedProto: [],
    requestId: [],
    transferEncoding: [],
    contentLength: [],
    expect: [],
    upgrade: [],
    userAgent: [],
    traceparent: [],
    tracestate: [],
  };
  t.strictSame(readDecisiveHeaders([]), noHeaders);
  const names = ['x_api_key', 'x-api-key ', 'x-api-keys', 'api-key', 'authorization', 'cookie', 'x-forwarded-for-', ''];
  const others = ['x_forwarded_for', 'forwarded', 'x-real-ip', 'x-forwarded', 'true-client-ip', 'cf-connecting-ip'];
  const more = ['x-forwarded-ssl', 'x-url-scheme', 'front-end-https', 'referrer', 'x-forwarded-host', '__proto__'];
  t.strictSame(
    readDecisiveHeaders(flat([...names, ...others, ...more].map((name): [string, string] => [name, 'x-api-key']))),
    noHeaders,
  );
  t.end();
});

t.test('a request target is split at its first question mark and otherwise unchanged', (t) => {
  const rows: readonly [string, string, string][] = [
    ['/v1/payouts', '/v1/payouts', ''],
    ['/v1/payouts?', '/v1/payouts', '?'],
    ['/v1/payouts?a=/..&b=?c', '/v1/payouts', '?a=/..&b=?c'],
    ['?', '', '?'],
    ['', '', ''],
    ['/a%3Fb?c#d', '/a%3Fb', '?c#d'],
  ];
  for (const [target, path, query] of rows) t.strictSame(splitTarget(target), { absolute: null, path, query }, target);
  const absolute: readonly [string, string, string, string, string][] = [
    ['https://a.example:8443/v1/payouts?x=https://b', 'https', 'a.example:8443', '/v1/payouts', '?x=https://b'],
    ['HTTP://A/', 'http', 'A', '/', ''],
    ['https://a', 'https', 'a', '/', ''],
    ['https://a?x', 'https', 'a', '/', '?x'],
    ['https://a//b', 'https', 'a', '//b', ''],
    ['https://user:word@a/b', 'https', 'user:word@a', '/b', ''],
    ['https:///b', 'https', '', '/b', ''],
  ];
  for (const [target, scheme, authority, path, query] of absolute) {
    t.strictSame(splitTarget(target), { absolute: { scheme, authority }, path, query }, target);
  }
  for (const target of ['https:/a/b', 'ftp://a/b', 'a:443', '*', '//a/b', '/https://a/b', 'https:a']) {
    t.equal(splitTarget(target).absolute, null, target);
  }
  t.end();
});

const ambiguousPaths = [
  ...[
    '',
    '*',
    'v1/payouts',
    'https://localhost/v1',
    'localhost:443',
    '?',
    '//',
    '//v1',
    '/v1//payouts',
    '/v1/payouts//',
  ],
  ...['/.', '/..', '/./v1', '/v1/./payouts', '/v1/../payouts', '/v1/payouts/.', '/v1/payouts/..', '/v1/payouts/../'],
  ...['/v1/%2e/payouts', '/v1/%2E%2e/payouts', '/v1/.%2e/payouts', '/v1/%2e./payouts', '/v1/%2e', '/v1/..%2E/..'],
  ...['/v1/..;/payouts', '/v1/.;x', '/v1/..;', '/v1/%2e.;a=b/c', '/v1/..%3b/x', '/v1/%2E%2E%3Bx', '/v1/..;..'],
  ...['/v1/;/payouts', '/v1/;', '/v1/;x', '/v1/%3b/x', '/v1/%3Bx/y'],
  ...['/v1%2fpayouts', '/v1%2Fpayouts', '/v1\\payouts', '/v1%5cpayouts', '/v1%5Cpayouts', '/v1/a%2f..%2fb'],
  ...['/v1/%00', '/v1/%0d%0a', '/v1/%1f', '/v1/%7f', '/v1/%7F', '/v1/%252e', '/v1/%25', '/v1/%2525', '/v1/a%25'],
  ...['/v1/%', '/v1/%2', '/v1/%zz', '/v1/%u002f', '/v1/%%32', '/v1/% 20', '/v1/a b', '/v1/a\tb', '/v1/a\nb'],
  ...['/v1/é', '/v1/\u00c3\u00a9', '/v1/\u0000', '/v1/\u007f', '/v1/payouts\n', '\n/v1/payouts', '/v1/a\u2028'],
  ...['/v1/"a"', '/v1/<a>', '/v1/[a]', '/v1/{a}', '/v1/a|b', '/v1/a^b', '/v1/`', '/v1#a'],
];

t.test('a path that climbs (dot segments) or splits (encoded separators) is refused', (t) => {
  t.same(ambiguousPaths.filter(hasFixedSegments), []);
  t.end();
});

t.test('a path with octets that are not UTF-8 is refused: some services decode overlong forms of / and .', (t) => {
  const paths = [
    '/v1/dev/%c0%ae%c0%ae/payouts',
    '/v1/dev%c0%afpayouts',
    '/v1/dev%e0%80%afpayouts',
    '/v1/dev/%ff',
    '/v1/dev/%C3',
    '/v1/dev/%a9',
    '/v1/dev/%ed%a0%80',
    '/v1/dev/%f4%90%80%80',
  ];
  t.same(paths.filter(hasFixedSegments), []);
  t.end();
});

t.test('a path has fixed segments despite needless encoding and any parameters', (t) => {
  const paths = [
    ...['/', '/v1', '/v1/', '/v1/payouts', '/v1/payouts/', '/v1/dev/customers/01J-AZ_az.~9', '/.well-known', '/...'],
    ...['/v1/a.b', '/v1/.a', '/v1/a.', '/v1/..a', '/v1/a..', '/v1/%C3%A9', '/v1/%c3%a9', '/v1/%E2%82%AC'],
    ...["/v1/a+b@c,d=e:f!$&'()*", '/v1/a%20b', '/v1/a%3Fb', '/v1/a%23b', '/v1/%5Ba%5D', '/v1/%40', '/v1/%60'],
    ...['/v1/payouts;a=b', '/v1/payouts%3ba', '/v1/a;', '/v1/a;/b', '/v1/...;x', '/v1/%2e%2e%2e', '/v1/a%2e%2e'],
    ...['/%76%31/payouts', '/v1/dev/%70ayouts', '/v1/%50', '/v1/%2d', '/v1/%7e', '/v1/%6F', '/v1/%F0%9F%92%B6'],
  ];
  t.same(
    paths.filter((path) => !hasFixedSegments(path)),
    [],
  );
  t.end();
});

/** Returns whether a segment, decoded and without its parameters, is still one plain segment. */
function isOneSegment(decoded: string): boolean {
  return !/[/\\%\u0000-\u001f\u007f]/.test(decoded) && !['', '.', '..'].includes(decoded.split(';')[0] ?? '');
}

t.test('fixed segments are the same decoded or encoded, with or without parameters, for any path', (t) => {
  const hexDigit = fc.constantFrom(...Array.from('0123456789abcdefABCDEF'));
  const octet = fc.tuple(hexDigit, hexDigit).map(([high, low]) => `%${high}${low}`);
  const piece = fc.oneof(
    { weight: 4, arbitrary: fc.constantFrom('/', '.', '..', 'a', 'v1', '-', '~', ';', '\\', '%', '%2', '//', '/./') },
    { weight: 2, arbitrary: fc.constantFrom('%2e', '%2E', '%3b', '/', 'a') },
    { weight: 3, arbitrary: octet.filter((text) => parseInt(text.slice(1), 16) < 0x80) },
    { weight: 1, arbitrary: octet },
    { weight: 2, arbitrary: fc.string({ unit: 'grapheme', minLength: 1, maxLength: 2 }).map(encodeURIComponent) },
    { weight: 1, arbitrary: fc.string({ unit: 'binary-ascii', maxLength: 2 }) },
  );
  let fixed = 0;
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 5 }), (pieces) => {
      const path = `/${pieces.join('')}`;
      if (!hasFixedSegments(path)) return true;
      fixed += 1;
      const segments = path.slice(1).split('/');
      const last = segments.pop() ?? '';
      return [...segments, ...(last === '' ? [] : [last])].map(decodeURIComponent).every(isOneSegment);
    }),
    { numRuns: 10_000 },
  );
  t.ok(fixed > 500, `${fixed} paths had fixed segments`);
  t.end();
});

/** A second implementation of `hasFixedSegments`. It examines a path character by character. */
function independentlyFixed(path: string): boolean {
  const segments = path.split('/');
  if (segments.length < 2 || segments[0] !== '') return false;
  return segments.slice(1).every((segment, index, all) => {
    let meaning: string;
    try {
      meaning = decodeURIComponent(segment);
    } catch {
      return false;
    }
    const isEmptyEnd = segment === '' && index === all.length - 1;
    if (!isEmptyEnd && !isOneSegment(meaning)) return false;
    const spelt = segment.match(/%..|[^]/g) ?? [];
    return spelt.every((letter) => letter.length === 3 || /^[0-9a-zA-Z._~\-!$&'()*+,;=:@]$/.test(letter));
  });
}

t.test('segments are fixed exactly where an independent implementation agrees; URL leaves them unchanged', (t) => {
  const letters = [
    ...Array.from('/./..aZ9-_~;\\%!$&\'()*+,=:@"<>[]{}|^` #?é\u0000\u007f\t\n'),
    '%41',
    '%2f',
    '%2E',
    '%25',
    '%c3%a9',
  ];
  const piece = fc.oneof(
    { weight: 6, arbitrary: fc.constantFrom('a', 'v1', '/', '.', '-', ':', '%20', '%C3%A9', '@') },
    { weight: 1, arbitrary: fc.constantFrom(...letters) },
    { weight: 1, arbitrary: fc.integer({ min: 0, max: 255 }).map((code) => `%${code.toString(16).padStart(2, '0')}`) },
  );
  let fixed = 0;
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 8 }), (pieces) => {
      const path = `/${pieces.join('')}`;
      const result = hasFixedSegments(path);
      if (result) fixed += 1;
      if (result !== independentlyFixed(path)) return false;
      return !result || new URL(`http://h${path}`).pathname === path;
    }),
    { numRuns: 10_000 },
  );
  t.ok(fixed > 1000, `${fixed} paths had fixed segments`);
  t.end();
});

t.test('every plain segment is fixed in the spelling of encodeURIComponent', (t) => {
  const segment = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 8 }).filter(isOneSegment);
  fc.assert(
    fc.property(fc.array(segment, { minLength: 1, maxLength: 4 }), (segments) =>
      hasFixedSegments(`/${segments.map(encodeURIComponent).join('/')}`),
    ),
  );
  t.end();
});

const reservedNames = [
  ...['x-api-key', 'X-Api-Key', 'x_api_key', 'X_API-KEY', 'x-merchant-id', 'X_Merchant_Id', 'x-merchant-anything'],
  ...[
    'X-Merchant-Key-Id',
    'x-merchant-',
    'x.merchant.id',
    'x!merchant~id',
    'X-Gateway-Assertion',
    'x_gateway_anything',
  ],
  ...['x-forwarded-for', 'X_Forwarded-For', 'x-forwarded-port', 'x|forwarded|user', 'X-FORWARDED-X', 'x-forwarded'],
  ...['forwarded', 'Forwarded', 'forwarded-for', 'x-real-ip', 'X_Real_IP', 'x-request-id', 'X_Request-Id'],
  ...['remote-user', 'X-Remote-Addr', 'Remote.Addr', 'x-auth-request-user', 'x-webauth-user', 'front-end-https'],
  ...['client-ip', 'X-Client-IP', 'True-Client-IP', 'CF-Connecting-IP', 'cf`connecting`ip', 'Fastly-Client-IP'],
  ...[
    'X-Cluster-Client-IP',
    'X-Envoy-External-Address',
    'WL-Proxy-Client-IP',
    'HTTP_CLIENT_IP',
    'HTTP_X_FORWARDED_FOR',
  ],
  ...['X-HTTP-Method', 'X-HTTP-Method-Override', 'x^http^method^override', 'X-Method-Override', 'X-Original-URL'],
  ...['X-Original-Method', 'x-envoy-original-path', 'X-Rewrite-URL', 'X-Override-URL', 'X-Sendfile-Type', 'Proxy'],
  ...['content_length', 'Content.Length', 'transfer_encoding', 'keep.alive', 'proxy_connection', 'http2#settings'],
];
const keptNames = [
  ...['accept', 'Authorization', 'content-type', 'Content-Type', 'content_type', 'content-length', 'Idempotency-Key'],
  ...['idempotency_key', 'x-merchant', 'x-gateway', 'cookie', 'x-forward', 'xx-merchant-id', 'merchant-id', 'origin'],
  ...['my-x-api-key', 'x-api-keys', 'x-real-ips', 'via', 'xmerchant-id', 'x--merchant-id', 'x_custom', 'x.custom'],
  ...['trace-parent', 'user-agent', '__proto__', 'range', 'x-http', 'x-original', 'remote', 'proxies', 'hosts'],
];
/** The headers of a trace. The gateway does not forward them but writes its own, because it is a span of the trace. */
const traceNames = ['traceparent', 'TraceParent', 'tracestate', 'Tracestate'];
const hopNames = [
  ...['Connection', 'Keep-Alive', 'TE', 'Trailer', 'Transfer-Encoding', 'Upgrade', 'Proxy-Authorization'],
  ...['Proxy-Authenticate', 'Proxy-Connection', 'Expect', 'HTTP2-Settings'],
];

t.test('the upstream gets the client’s headers except reserved and hop-by-hop headers and Host', (t) => {
  const pair = (name: string, index: number): [string, string] => [name, `value ${index}`];
  const dropped = [
    ...reservedNames,
    ...traceNames,
    ...hopNames,
    ...hopNames.map((name) => name.toLowerCase()),
    'Host',
    'HOST',
  ];
  t.strictSame(forwardableHeaders(flat(dropped.map(pair))), []);
  const kept = flat(keptNames.map(pair));
  t.strictSame(forwardableHeaders(kept), kept);
  const mixed: Pairs = [
    ['X-Kept', 'two'],
    ['x-merchant-id', 'evil'],
    ['x-kept', 'one'],
    ['Host', 'localhost'],
    ['X-KEPT', ''],
    ['Cookie', 'a=1'],
    ['te', 'trailers'],
    ['cookie', 'b=2'],
  ];
  t.strictSame(
    forwardableHeaders(flat(mixed)),
    ['X-Kept', 'two', 'x-kept', 'one', 'X-KEPT', '', 'Cookie', 'a=1', 'cookie', 'b=2'],
    'order, case and repetition are kept',
  );
  t.end();
});

t.test('a header is judged by its name, at any position and for any number of headers', (t) => {
  const random = Array.from({ length: 3_000 }, (_, index) => [`x-Random-${index}`, `X_Merchant-${index}`]).flat();
  const names = [...random, `x-gateway-${'a'.repeat(100)}`, `x-${'b'.repeat(100)}`];
  const expected = names.filter((name) => !/^x[-_](?:merchant|gateway)-/i.test(name));
  for (let time = 0; time < 2; time += 1) {
    const forwarded = forwardableHeaders(flat(names.map((name) => [name, 'value'])));
    t.strictSame(
      forwarded.filter((one) => one !== 'value'),
      expected,
    );
  }
  t.end();
});

t.test('headers that Connection names are hop-by-hop, except the length and encoding of the body', (t) => {
  const forwarded = forwardableHeaders(
    flat([
      ['X-First', '1'],
      ['Connection', 'close, X-First,\tx-SECOND ,, '],
      ['x-second', '2'],
      ['X-Third', '3'],
      ['CONNECTION', 'x-third, Content-Length, content.length, x-merchant-id'],
      ['Content-Length', '7'],
      ['x-merchant-id', 'evil'],
      ['X-Kept', 'x-first'],
      ['x_first', 'the same header to CGI'],
      ['x-firsts', 'another header'],
    ]),
  );
  t.strictSame(forwarded, ['Content-Length', '7', 'X-Kept', 'x-first', 'x-firsts', 'another header']);
  t.end();
});

t.test('for any headers, the forwarded ones are exactly those not removed', (t) => {
  const name = fc.oneof(
    fc.constantFrom(...reservedNames, ...keptNames, ...traceNames, ...hopNames, 'Host', 'x-a', 'X-B'),
    fc.stringMatching(/^[A-Za-z_.-]{1,12}$/),
  );
  const header = fc.oneof(
    { weight: 6, arbitrary: fc.tuple(name, fc.string({ maxLength: 5 })) },
    {
      weight: 1,
      arbitrary: fc.tuple(
        fc.constantFrom('connection', 'Connection'),
        fc.array(name).map((names) => names.join(', ')),
      ),
    },
  );
  const asCgi = (text: string): string => text.toUpperCase().replace(/[^A-Z0-9]/g, '_');
  const dropped = new Set([...reservedNames, ...hopNames, ...traceNames, 'host'].map(asCgi));
  const reserved = /^X_(?:MERCHANT|GATEWAY|FORWARDED)_/;
  fc.assert(
    fc.property(fc.array(header, { maxLength: 12 }), (headers) => {
      const named = headers
        .filter(([one]) => one.toLowerCase() === 'connection')
        .flatMap(([, value]) => value.split(/[ \t]*,[ \t]*/).map(asCgi))
        .filter((token) => token !== 'CONTENT_LENGTH');
      const rest = headers.filter(([one]) => {
        const variable = asCgi(one);
        if (named.includes(variable)) return false;
        return one.toLowerCase() === 'content-length' || !(dropped.has(variable) || reserved.test(variable));
      });
      return isDeepStrictEqual(forwardableHeaders(flat(headers)), flat(rest));
    }),
    { numRuns: 500 },
  );
  t.end();
});

t.test('the client gets the upstream’s headers except hop-by-hop headers and its request id', (t) => {
  t.strictSame(
    returnableHeaders([
      'content-type',
      'application/json',
      'content-length',
      '2',
      'set-cookie',
      ['a=1', 'b=2'],
      'connection',
      'close, X-Hop, content-length',
      'x-hop',
      '1',
      'keep-alive',
      'timeout=5',
      'transfer-encoding',
      'chunked',
      'trailer',
      'x',
      'upgrade',
      'h2c',
      'proxy-authenticate',
      'Basic',
      'proxy-connection',
      'close',
      'te',
      'trailers',
      'x-request-id',
      'of the upstream',
      'retry-after',
      '5',
    ]),
    ['content-type', 'application/json', 'content-length', '2', 'set-cookie', ['a=1', 'b=2'], 'retry-after', '5'],
  );
  t.strictSame(returnableHeaders(['connection', ['x-a', 'x-b'], 'x-a', '1', 'x-b', '2', 'x-c', '3']), ['x-c', '3']);
  t.strictSame(returnableHeaders(['x-a', '1', 'x-c', '3', 'connection', 'x-a']), ['x-c', '3'], 'at any position');
  t.strictSame(returnableHeaders([]), []);
  t.end();
});

t.test('a trusted proxy’s request id is used if it is short and safe; otherwise an id is generated', (t) => {
  const ulidForm = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/;
  for (const kept of ['a', 'A-z_0.9', 'x'.repeat(64), '4bf92f3577b34da6a3ce929d0e0e4736']) {
    t.equal(requestIdOf([kept], true, containsKey), kept);
    t.match(requestIdOf([kept], false, containsKey), ulidForm, 'an untrusted peer cannot choose it');
  }
  const refused = ['', 'x'.repeat(65), 'a b', 'a\n', 'a\r\nb', 'a/b', 'a,b', 'é', '"a"', 'a=b', '<a>', 'a:b', '\u202e'];
  for (const value of refused) t.match(requestIdOf([value], true, containsKey), ulidForm, JSON.stringify(value));
  t.match(requestIdOf([], true, containsKey), ulidForm);
  const key = `svc_live_${'x'.repeat(43)}`;
  for (const value of [key, Buffer.from(key).toString('hex').slice(0, 64)])
    t.match(requestIdOf([value], true, containsKey), ulidForm, 'an API key is no request id');
  t.match(requestIdOf(['a', 'a'], true, containsKey), ulidForm, 'two request ids are invalid');
  const made = Array.from({ length: 1000 }, () => requestIdOf([], false, containsKey));
  t.equal(new Set(made).size, made.length, 'generated ids are unique');
  t.end();
});

/** A received request without a connection. */
function requestOf({ version = '1.1', target = '/', headers = [] as readonly string[] }): RequestData {
  const origin = { remote: null, via: 'peer' as const, port: null, mayForward: true, place: null };
  return new RequestData('GET', version, target, headers, { ...origin, tls: null, usedFirstLookup: false }, 0);
}

t.test('a request needs a known version and one well-formed Host', (t) => {
  const outcome = (version: string, hosts: readonly string[], more: readonly string[] = []): string => {
    try {
      const headers = [...hosts.flatMap((host) => ['Host', host]), ...more];
      requireProtocol(requestOf({ version, headers }), { headerBytes: 1024, targetBytes: 256 });
      return 'accepted';
    } catch (error) {
      return error instanceof GatewayError ? error.code : String(error);
    }
  };
  const good = [
    'localhost',
    'api.shop.example:8443',
    '127.0.0.1',
    '[2001:db8::1]',
    '[::1]:443',
    'a_b',
    'x.onion',
    'h:',
  ];
  for (const host of good) t.equal(outcome('1.1', [host]), 'accepted', host);
  t.equal(outcome('1.0', []), 'accepted', 'HTTP/1.0 needs no Host');
  const coding = (...values: string[]): string[] => values.flatMap((value) => ['Transfer-Encoding', value]);
  t.equal(outcome('1.1', ['h'], coding('chunked')), 'accepted');
  t.equal(outcome('1.1', ['h'], coding('Chunked')), 'accepted');
  for (const codings of [
    coding('gzip, chunked'),
    coding('identity', 'chunked'),
    coding(''),
    coding('chunked', 'chunked'),
  ]) {
    t.equal(outcome('1.1', ['h'], codings), 'malformed_request', codings.join(' '));
  }
  t.equal(outcome('1.0', ['h'], coding('chunked')), 'malformed_request', 'HTTP/1.0 has no chunked encoding');
  t.equal(
    outcome('1.1', ['h'], [...coding('chunked'), 'Content-Length', '3']),
    'malformed_request',
    'two Content-Length headers',
  );
  const bad = [
    '',
    ' ',
    'a b',
    'a/b',
    'user@host',
    'a?b',
    'a#b',
    'a\\b',
    '[::1',
    '::1',
    'a:b',
    'a:123456',
    'é',
    'a%41',
    'a,b',
    'a:65536',
    'a:-1',
    '[:]:443',
    '[1::2::3]',
    '[10.0.0.1]',
    '[fe80::1%25eth0]',
  ];
  for (const host of bad) t.equal(outcome('1.1', [host]), 'invalid_host', JSON.stringify(host));
  for (const hosts of [[], ['a', 'a'], ['a', 'b']])
    t.equal(outcome('1.1', hosts), 'invalid_host', `${hosts.length} hosts`);
  t.equal(outcome('1.0', ['a', 'b']), 'invalid_host');
  for (const version of ['0.9', '2.0', '1.2', '3.0', ''])
    t.equal(outcome(version, ['a']), 'malformed_request', version);
  t.end();
});

t.test('an absolute-form target must name the same host as Host', (t) => {
  const outcome = (target: string, host: string | null): string => {
    try {
      const limits = { headerBytes: 1024, targetBytes: 256 };
      const named = host === null ? { version: '1.0' } : { headers: ['Host', host] };
      requireProtocol(requestOf({ target, ...named }), limits);
      return 'accepted';
    } catch (error) {
      return error instanceof GatewayError ? error.code : String(error);
    }
  };
  const own: readonly [string, string][] = [
    ['https://api.example/v1', 'api.example'],
    ['https://API.example:443/v1', 'api.EXAMPLE'],
    ['http://api.example/v1', 'api.example:80'],
    ['https://api.example:8443/v1', 'api.example:8443'],
    ['https://[::1]:8443', '[::1]:8443'],
  ];
  for (const [target, host] of own) t.equal(outcome(target, host), 'accepted', target);
  const others: readonly [string, string | null][] = [
    ['https://other.example/v1', 'api.example'],
    ['https://abcdef.onion/v1', null], // HTTP/1.0 needs no Host: this host would go unchecked
    ['https://api.example/v1', null],
    ['https://api.example:80/v1', 'api.example'],
    ['http://api.example:443/v1', 'api.example'],
    ['https://api.example@other.example/v1', 'other.example'],
    ['https:///v1', 'api.example'],
    ['https://api.example.:443/v1', 'api.example'],
    ['https://api.example\\.other/v1', 'api.example'],
  ];
  for (const [target, host] of others) t.equal(outcome(target, host), 'invalid_host', target);
  t.end();
});

t.test('the header limit counts line ends and colons; the target has its own limit', (t) => {
  const outcome = (target: string, headers: string[]): string => {
    try {
      requireProtocol(requestOf({ target, headers }), { headerBytes: 1024, targetBytes: 256 });
      return 'accepted';
    } catch (error) {
      return error instanceof GatewayError ? error.code : String(error);
    }
  };
  t.equal(outcome(`/${'x'.repeat(255)}`, ['Host', 'a']), 'accepted');
  t.equal(outcome(`/${'x'.repeat(256)}`, ['Host', 'a']), 'target_too_long');
  const frame = 'GET / HTTP/1.1\r\nHost: a\r\nx: \r\n\r\n'.length;
  t.equal(outcome('/', ['Host', 'a', 'x', 'y'.repeat(1024 - frame)]), 'accepted', 'exactly the limit is allowed');
  t.equal(outcome('/', ['Host', 'a', 'x', 'y'.repeat(1025 - frame)]), 'headers_too_large');
  const many = Array.from({ length: 200 }, () => ['a', 'b']).flat();
  t.equal(outcome('/', ['Host', 'a', ...many]), 'headers_too_large', 'many small headers count in full');
  t.end();
});

/** The tables of the contract and of RFC 9110, repeated here so that a change of the source fails the test. */
const deniedWith: Readonly<Record<DenialCode, [number, string]>> = {
  https_required: [401, 'API requests must use HTTPS (TLS)'],
  tor_blocked: [401, 'Tor traffic is not allowed'],
  key_required: [401, 'API Key is required'],
  key_format: [401, 'Invalid API key format'],
  test_key_in_live: [401, 'Test API keys are not valid in production'],
  live_key_in_test: [401, 'Live API keys are not valid in this environment'],
  key_unknown: [401, 'Invalid API Key'],
  key_inactive: [401, 'API Key is inactive or revoked'],
  merchant_inactive: [401, 'Merchant is not active'],
  merchant_not_live: [401, 'Merchant is not live'],
  ip_not_allowed: [401, 'IP address not allowed'],
  origin_not_allowed: [401, 'Origin not allowed'],
  permission_denied: [403, 'Forbidden'],
};
const failedWith: Readonly<Partial<Record<GatewayErrorCode, [number, string]>>> = {
  malformed_request: [400, 'Malformed HTTP request'],
  invalid_host: [400, 'Invalid Host header'],
  invalid_forwarded_for: [400, 'Invalid X-Forwarded-For header'],
  invalid_path: [400, 'Invalid request path'],
  not_found: [404, 'Not found'],
  method_not_allowed: [405, 'Method not allowed'],
  request_timeout: [408, 'Request timeout'],
  body_too_large: [413, 'Request body too large'],
  target_too_long: [414, 'Request target too long'],
  throttled: [429, 'Too many requests'],
  rate_limited: [429, 'Too many requests'],
  headers_too_large: [431, 'Request header fields too large'],
  internal_error: [500, 'Internal error'],
  upstream_failed: [502, 'Bad gateway'],
  key_store_unavailable: [503, 'Service temporarily unavailable'],
  overloaded: [503, 'Service temporarily unavailable'],
  upstream_busy: [503, 'Service temporarily unavailable'],
  upstream_timeout: [504, 'Gateway timeout'],
};

function expectedResponse(status: number, message: string): object {
  const body = `{"success":false,"message":"${message}","data":null}`;
  return {
    status,
    body,
    headers: {
      'content-type': 'application/json; charset=utf-8',
      'content-length': String(body.length),
      'cache-control': 'no-store',
      ...(status === 401 ? { 'www-authenticate': 'ApiKey realm="merchant-api", header="x-api-key"' } : {}),
      ...(status === 503 || status === 429 ? { 'retry-after': '1' } : {}),
    },
  };
}

t.test('every response of the gateway itself is the envelope, byte for byte', (t) => {
  for (const [code, [status, message]] of Object.entries(deniedWith)) {
    t.strictSame(denialFailure(code as DenialCode), expectedResponse(status, message), code);
    t.match(
      denialFailure(code as DenialCode).body,
      /^[\x20-\x7e]+$/,
      `${code}: Content-Length counts ASCII characters`,
    );
  }
  for (const [code, [status, message]] of Object.entries(failedWith)) {
    t.strictSame(errorFailure(code as GatewayErrorCode), expectedResponse(status, message), code);
    t.match(
      errorFailure(code as GatewayErrorCode).body,
      /^[\x20-\x7e]+$/,
      `${code}: Content-Length counts ASCII characters`,
    );
  }
  t.equal(denials.length, Object.keys(deniedWith).length, 'every denial is covered');
  t.end();
});

t.test('a failure has a status of the contract and a message without address, library or path', (t) => {
  const statuses = [400, 404, 405, 408, 413, 414, 429, 431, 500, 502, 503, 504];
  for (const [code, { status, message }] of Object.entries(gatewayErrors)) {
    t.match(message, /^[A-Z][A-Za-z -]+$/, message);
    t.notMatch(message, /node|fastify|undici|redis|proxy\b|upstream|econn|socket|undefined/i);
    if (code !== 'client_closed') t.ok(statuses.includes(status), `${code}: ${status}`);
  }
  t.end();
});

t.test('an error keeps the operator’s detail apart from the client’s message', (t) => {
  const cause = new Error('connect ECONNREFUSED 10.0.0.7:7080');
  const error = new GatewayError('upstream_failed', 'payouts: connect ECONNREFUSED', { cause });
  t.match(error, { name: 'GatewayError', code: 'upstream_failed', message: 'payouts: connect ECONNREFUSED', cause });
  t.notMatch(errorFailure(error.code).body, /ECONNREFUSED|payouts/);
  t.end();
});
