import t from 'tap';
import { ask, connect, exchangeBytes, liveKey, parseResponse, requestBytes } from './harness.js';
import { startTestGateway, startUpstream } from './harness.js';
import type { GatewayUnderTest, RawResponse } from './harness.js';

const key = ['x-api-key', liveKey] as const;

/**
 * Sends requests that get every kind of response: proxied, denied, refused by another check of the gateway, or refused
 * by the HTTP parser. Returns each response with a name.
 */
async function responses(
  gateway: GatewayUnderTest,
  overTls: boolean,
): Promise<readonly (readonly [string, RawResponse])[]> {
  const port = overTls ? gateway.https : gateway.http;
  const send = async (bytes: string): Promise<RawResponse> =>
    parseResponse(await exchangeBytes(connect(port, overTls ? gateway.ca : null), bytes));
  return [
    ['proxied', await send(requestBytes({ headers: [key] }))],
    ['denied', await send(requestBytes({}))],
    ['without a route', await send(requestBytes({ path: '/v1/nowhere', headers: [key] }))],
    ['CONNECT', await send(requestBytes({ method: 'CONNECT', path: 'a:1', headers: [key] }))],
    ['without a Host', await send(requestBytes({ host: null }))],
    ['refused by the parser', await send('garbage\r\n\r\n')],
    ['with a header over the limit', await send(requestBytes({ headers: [['x-long', 'x'.repeat(40_000)]] }))],
  ];
}

t.test('every response has a date', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  for (const overTls of [true, false]) {
    for (const [name, response] of await responses(gateway, overTls)) {
      t.match(response.header('date'), /^\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT$/, `${response.status} ${name}`);
      t.equal(response.headers.filter(([header]) => header === 'date').length, 1, name);
    }
  }
  const raw = await exchangeBytes(connect(gateway.management, null), 'garbage\r\n\r\n', (text) => text.endsWith('}'));
  t.match(raw, /\r\ndate: /);
});

t.test('every response over TLS has strict-transport-security, and no response over plain HTTP has it', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  for (const [name, response] of await responses(gateway, true)) {
    t.equal(response.header('strict-transport-security'), 'max-age=31536000', `${response.status} ${name}`);
  }
  for (const [name, response] of await responses(gateway, false)) {
    t.equal(response.header('strict-transport-security'), undefined, `${response.status} ${name}`);
  }
});

t.test('strict-transport-security is configurable, and a service’s own header has priority', async (t) => {
  const upstream = await startUpstream(t);
  const started = (strictTransportSecuritySeconds: number): Promise<GatewayUnderTest> =>
    startTestGateway(t, {
      upstreamUrl: upstream.url,
      config: { listen: { https: { strictTransportSecuritySeconds } } },
    });
  const name = 'strict-transport-security';
  t.equal((await ask(await started(0), {})).header(name), undefined);
  const gateway = await started(60);
  t.equal((await ask(gateway, {})).header(name), 'max-age=60');
  upstream.respond = (_request, response) => response.setHeader(name, 'max-age=1; preload').end('{}');
  const { headers } = await ask(gateway, { headers: [key] });
  t.same(
    headers.filter(([header]) => header === name),
    [[name, 'max-age=1; preload']],
  );
});
