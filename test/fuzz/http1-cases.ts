import type { Random } from './random.js';

const methods = ['GET', 'GET', 'POST', 'PUT', 'HEAD', 'OPTIONS', 'DELETE', 'CONNECT', 'TRACE', 'PRI', 'get', 'G@T', ''];
const targets = [
  ...['/v1/transactions', '/v1/transactions', '/v1/payouts', '/v1/dev/customers/1', '/v1/dev/../payouts', '*'],
  ...['/', '//', '/v1//payouts', '/v1/%2e%2e/payouts', '/v1/transactions?a=/..&b', '/v1/a;b', '/v1/%00', '/v1/%zz'],
  ...['https://localhost/v1/payouts', 'http://other.example/v1/payouts', 'localhost:443', '/v1/é', '/v1/a b', ''],
];
const versions = [
  'HTTP/1.1',
  'HTTP/1.1',
  'HTTP/1.1',
  'HTTP/1.0',
  'HTTP/2.0',
  'HTTP/0.9',
  'HTTP/1.2',
  'http/1.1',
  'X',
  '',
];
const lineEnds = ['\r\n', '\r\n', '\r\n', '\r\n', '\r\n', '\r\n', '\n', '\r', '\r\r\n', '\0\r\n', ''];
const bodies = [
  '',
  '{}',
  '{"amount":1}',
  '0\r\n\r\n',
  '2\r\n{}\r\n0\r\n\r\n',
  '2;x=y\r\n{}\r\n0\r\nA: b\r\n\r\n',
  'ZZ\r\n',
];
const lengths = ['0', '2', '12', '-1', '+2', '2, 2', '0x2', '99999999', '18446744073709551618', '', ' 2', '2 2'];
const codings = ['chunked', 'Chunked', 'gzip, chunked', 'identity', 'chunked, chunked', 'xchunked', '', '"chunked"'];
const odd = [
  ...['Connection: close', 'Connection: keep-alive', 'Connection: x-merchant-id, x-api-key', 'Connection: Upgrade'],
  ...['Upgrade: websocket', 'Upgrade: h2c', 'HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA', 'Expect: 100-continue'],
  ...[
    'Expect: 200-ok',
    'TE: trailers',
    'Trailer: x',
    'Host: other.example',
    'Host: a b',
    ' folded: header',
    '\tfolded',
  ],
  ...[
    'no colon',
    ': no name',
    'bad name: x',
    'n(a)me: x',
    'x : blank',
    'x\u000b: y',
    'nul\0: x',
    'nul: \0',
    'x: \u00ff',
  ],
  ...['Proxy-Authorization: Basic eDp5', 'Keep-Alive: timeout=1', 'Content-Type: ;;', 'Origin: null', 'Referer: \\'],
  ...['Origin: https://a.onion', 'User-Agent: \u009b31m', 'X-HTTP-Method-Override: DELETE', `big: ${'x'.repeat(9000)}`],
];
/** Headers that a service would trust as the gateway's; the value `forged` must never arrive in one of these. */
const forged = [
  ...['X-Merchant-Id', 'x_merchant_id', 'X-Merchant_Key-Id', 'X-Gateway-Assertion', 'X_GATEWAY_X', 'X-Forwarded-User'],
  ...['X_Forwarded_For', 'X-Forwarded-Host', 'Forwarded', 'X-Real-IP', 'X_Real_IP', 'X-Request-Id', 'X_Api_Key'],
  ...['X-Forwarded-For', 'X-Forwarded-Proto'],
];

/**
 * Generates the bytes for one connection: one to three requests, valid, malformed or garbage.
 * @param key a valid key for all requests; null: no valid key
 * @returns texts in Latin-1, to be written one after the other
 */
export function http1Case(random: Random, key: string | null): string[] {
  if (random.oneIn(20)) return [random.bytes(1 + random.below(400))];
  const requests = Array.from({ length: 1 + random.below(3) }, () => request(random, key));
  let text = requests.join(random.oneIn(10) ? random.bytes(3) : '');
  if (random.oneIn(4)) text = damaged(text, random);
  const cut = random.below(text.length + 1);
  return random.oneIn(3) ? [text.slice(0, cut), text.slice(cut)] : [text];
}

function request(random: Random, key: string | null): string {
  return random.oneIn(2) ? wellFormed(random, key) : broken(random, key);
}

function wellFormed(random: Random, key: string | null): string {
  const body = random.pick(['', '{}', '{"amount":1}']);
  const lines = [
    `${random.pick(['GET', 'POST', 'PUT', 'DELETE'])} ${random.pick(['/v1/transactions', '/v1/payouts?a=b'])} HTTP/1.1`,
    'Host: localhost',
    `x-api-key: ${key ?? 'svc_live_guess'}`,
    ...(body === '' ? [] : [`Content-Length: ${body.length}`]),
  ];
  while (!random.oneIn(3)) lines.push(`${random.pick(forged)}: forged`);
  return `${lines.join('\r\n')}\r\n\r\n${body}`;
}

function broken(random: Random, key: string | null): string {
  const lines = [`${random.pick(methods)} ${random.pick(targets)} ${random.pick(versions)}`];
  if (!random.oneIn(8)) lines.push('Host: localhost');
  if (key !== null) lines.push(`x-api-key: ${key}`);
  else if (!random.oneIn(3)) lines.push(`x-api-key: ${random.pick(['svc_live_guess', 'svc_test_guess', 'x', ''])}`);
  while (!random.oneIn(3)) lines.push(random.pick(odd));
  while (random.oneIn(2)) lines.push(`${random.pick(forged)}: forged`);
  const body = random.pick(bodies);
  if (random.oneIn(3)) lines.push(`Content-Length: ${random.oneIn(2) ? body.length : random.pick(lengths)}`);
  if (random.oneIn(4)) lines.push(`Transfer-Encoding: ${random.pick(codings)}`);
  const lineEnd = random.oneIn(4) ? () => random.pick(lineEnds) : () => '\r\n';
  return `${lines.map((line) => line + lineEnd()).join('')}${lineEnd()}${body}`;
}

/** The text with some bytes changed, doubled or omitted. */
function damaged(text: string, random: Random): string {
  let result = text;
  for (let count = 1 + random.below(3); count > 0 && result !== ''; count -= 1) {
    const at = random.below(result.length);
    const instead = random.pick([
      '',
      random.bytes(1),
      result.slice(at, at + 8) + result.slice(at, at + 8),
      '\r\n',
      '\0',
    ]);
    result = result.slice(0, at) + instead + result.slice(at + 1);
  }
  return result;
}
