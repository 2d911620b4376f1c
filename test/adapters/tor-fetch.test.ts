import http from 'node:http';
import https from 'node:https';
import net, { type AddressInfo, type Socket } from 'node:net';
import t from 'tap';
import { Agent } from 'undici';
import { ExitListRejected, type SourceContent, type Validators } from '../../src/adapters/tor/exit-source.js';
import { fetchList } from '../../src/adapters/tor/fetch-list.js';
import { createSelfSigned } from '../../src/cli/dev/self-signed.js';
import { freePort } from './redis-server.js';

interface Teardown {
  teardown(handler: () => unknown): void;
}

type Handler = (request: http.IncomingMessage, response: http.ServerResponse) => void;

const identity = await createSelfSigned(new Date());
const list = '198.51.100.9\n203.0.113.1\n';

async function listen(t: Teardown, server: net.Server, scheme: string): Promise<string> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined).once('close', () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return `${scheme}://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const serve = (t: Teardown, handler: Handler): Promise<string> => listen(t, http.createServer(handler), 'http');
const serveTls = (t: Teardown, handler: Handler): Promise<string> =>
  listen(t, https.createServer(identity, handler), 'https');

/** A server that sends these bytes on every connection, then closes it. */
function serveBytes(t: Teardown, bytes: string): Promise<string> {
  const server = net.createServer((socket) => {
    socket.once('data', () => socket.end(bytes, 'latin1'));
  });
  return listen(t, server, 'http');
}

interface Fetching {
  readonly known?: Validators | null;
  /** Whether the client trusts the servers' certificate. */
  readonly trusting?: boolean;
  readonly signal?: AbortSignal;
}

async function fetchFrom(t: Teardown, url: string, { known = null, trusting = true, signal }: Fetching = {}) {
  const dispatcher = new Agent({
    connect: { rejectUnauthorized: true, ...(trusting ? { ca: identity.cert } : {}) },
  });
  t.teardown(() => dispatcher.destroy());
  return fetchList(new URL(url), known, { dispatcher, signal: signal ?? new AbortController().signal });
}

/** The reason and message of a refusal. */
async function refusalOf(fetching: Promise<SourceContent>): Promise<string> {
  const error: unknown = await fetching.then(
    () => 'not refused',
    (reason: unknown) => reason,
  );
  return error instanceof ExitListRejected ? `${error.reason}: ${error.message}` : String(error);
}

t.test('a list is fetched with its validators, a user agent and verified TLS', async (t) => {
  const seen: http.IncomingHttpHeaders[] = [];
  const handler: Handler = ({ headers }, response) => {
    seen.push(headers);
    response.writeHead(200, {
      etag: '"1"',
      'last-modified': 'Thu, 01 Jan 2026 00:00:00 GMT',
      'content-type': 'text/plain',
    });
    response.end(list);
  };
  const expected = { text: list, etag: '"1"', lastModified: 'Thu, 01 Jan 2026 00:00:00 GMT', writtenAt: null };
  t.same(await fetchFrom(t, await serve(t, handler)), expected);
  t.match(seen[0], { 'user-agent': 'merchant-gateway', 'accept-encoding': 'identity' });
  t.notOk('if-none-match' in (seen[0] ?? {}));
  const secure = await serveTls(t, handler);
  t.same(await fetchFrom(t, secure), expected);
  t.match(await refusalOf(fetchFrom(t, secure, { trusting: false })), /^unreachable: .*SELF_SIGNED/);
  t.equal(seen.length, 2, 'an unverified server gets no request');
});

t.test('status 304 is accepted only for a conditional request', async (t) => {
  const seen: http.IncomingHttpHeaders[] = [];
  const url = await serve(t, ({ headers }, response) => {
    seen.push(headers);
    response.writeHead(304).end();
  });
  const known = { etag: '"1"', lastModified: 'Thu, 01 Jan 2026 00:00:00 GMT' };
  t.equal(await fetchFrom(t, url, { known }), 'unchanged');
  t.match(seen[0], { 'if-none-match': '"1"', 'if-modified-since': 'Thu, 01 Jan 2026 00:00:00 GMT' });
  t.match(await refusalOf(fetchFrom(t, url)), /^bad_answer: .* status 304/);
  const noValidators = { etag: null, lastModified: null };
  t.match(await refusalOf(fetchFrom(t, url, { known: noValidators })), /^bad_answer: .* status 304/);
});

t.test('every other response is refused, with a reason', async (t) => {
  const rows: [reason: RegExp, Handler][] = [
    ...[201, 204, 206, 400, 403, 404, 429, 500, 503].map((status): [RegExp, Handler] => [
      new RegExp(`^bad_answer: .* status ${status}`),
      (_request, response) => response.writeHead(status).end(status === 204 ? undefined : list),
    ]),
    [
      /^html: /,
      (_request, response) => response.writeHead(200, { 'content-type': 'text/HTML; charset=utf-8' }).end(list),
    ],
    [
      /^bad_answer: .* encoding/,
      (_request, response) => response.writeHead(200, { 'content-encoding': 'gzip' }).end('x'),
    ],
    [/^too_large: /, (_request, response) => response.writeHead(200, { 'content-length': 16 * 1024 * 1024 + 1 }).end()],
    [/^malformed: the content is not UTF-8/, (_request, response) => response.end(Buffer.from([0x31, 0xff, 0x0a]))],
    [/^unreachable: /, (request) => request.socket.destroy()],
    [
      /^cut_off: /,
      (_request, response) => {
        response.writeHead(200, { 'content-length': 100 });
        response.write(list, () => response.destroy());
      },
    ],
    [
      /^cut_off: /,
      (_request, response) => {
        response.writeHead(200);
        response.write(list, () => response.destroy());
      },
    ],
  ];
  for (const [reason, handler] of rows) {
    t.match(await refusalOf(fetchFrom(t, await serve(t, handler))), reason);
  }
  const closed = `http://127.0.0.1:${await freePort()}`;
  t.match(await refusalOf(fetchFrom(t, closed)), /^unreachable: .*ECONNREFUSED/);
});

t.test('an endless list is cut off at the limit, and its connection closed', async (t) => {
  let sent = 0;
  const closed = new Promise<void>((resolve) => {
    t.teardown(() => {
      resolve();
    });
    void serve(t, (_request, response) => {
      const chunk = Buffer.alloc(64 * 1024, '\n');
      const write = (): void => {
        sent += chunk.length;
        if (!response.destroyed) response.write(chunk, write);
      };
      response.once('close', resolve);
      write();
    }).then(async (url) => {
      t.match(await refusalOf(fetchFrom(t, url)), /^too_large: the list is larger than 16777216 bytes/);
    });
  });
  await closed;
  t.ok(sent < 64 * 1024 * 1024, `${sent} bytes were sent`);
});

t.test('a response delimited by the end of its connection is accepted only with a complete last line', async (t) => {
  const head = 'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n';
  t.match(await fetchFrom(t, await serveBytes(t, `${head}${list}`)), { text: list });
  t.match(await fetchFrom(t, await serveBytes(t, `${head}{"relays":[]}`)), { text: '{"relays":[]}' });
  t.match(await refusalOf(fetchFrom(t, await serveBytes(t, `${head}198.51.100.9\n203.0.113.1`))), /^cut_off: /);
});

t.test('a few redirects are followed, but never to a target where anybody could write the list', async (t) => {
  const to =
    (location: string | undefined, status = 302): Handler =>
    (_request, response) =>
      response.writeHead(status, location === undefined ? {} : { location }).end();
  const plain = await serve(t, (_request, response) => response.end(list));
  const secure = await serveTls(t, (_request, response) => response.end(list));
  for (const status of [301, 302, 303, 307, 308]) {
    t.match(await fetchFrom(t, await serve(t, to(secure, status))), { text: list }, `${status} from http to https`);
  }
  t.match(await fetchFrom(t, await serve(t, to(plain))), { text: list }, 'from http to http');
  const relative = await serve(t, ({ url }, response) => {
    if (url === '/b') response.end(list);
    else response.writeHead(301, { location: 'b' }).end();
  });
  t.match(await fetchFrom(t, `${relative}/a`), { text: list }, 'a relative redirect');

  const refused: [RegExp, string][] = [
    [/^bad_answer: .*from https to a protocol other than https/, await serveTls(t, to(plain))],
    [/^bad_answer: .*to a protocol other than http and https/, await serve(t, to('ftp://a.test/'))],
    [/^bad_answer: .*to a protocol other than http and https/, await serve(t, to('file:///etc/passwd'))],
    [/^bad_answer: .*to a URL with a user or a password/, await serve(t, to('http://user@a.test/'))],
    [/^bad_answer: .*without a valid Location header/, await serve(t, to(undefined))],
    [/^bad_answer: .*without a valid Location header/, await serve(t, to('http://'))],
    [/^bad_answer: .*more than 3 times/, await serve(t, to('/'))],
  ];
  for (const [reason, url] of refused) t.match(await refusalOf(fetchFrom(t, url)), reason);
});

t.test('a server that takes too long times out: before its headers and within its list', async (t) => {
  const silent = await serve(t, () => undefined);
  t.match(await refusalOf(fetchFrom(t, silent, { signal: AbortSignal.timeout(50) })), /^unreachable: .*: timeout$/);
  const slow = await serve(t, (_request, response) => response.write('198.51.100.9\n'));
  t.match(
    await refusalOf(fetchFrom(t, slow, { signal: AbortSignal.timeout(500) })),
    /^(?:cut_off|unreachable): .*: timeout$/,
  );
});

t.test('no message contains the secret part of a URL', async (t) => {
  const url = await serve(t, (_request, response) => response.writeHead(403).end());
  t.notMatch(await refusalOf(fetchFrom(t, `${url}/?token=s3cret`)), /s3cret/);
  t.notMatch(await refusalOf(fetchFrom(t, 'http://127.0.0.1:1/?token=s3cret')), /s3cret/);
});
