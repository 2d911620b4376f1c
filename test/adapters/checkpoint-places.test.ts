import { once } from 'node:events';
import type http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import { hostname } from 'node:os';
import type { AddressInfo } from 'node:net';
import tls from 'node:tls';
import t from 'tap';
import type { Test } from 'tap';
import { HttpsCheckpoints } from '../../src/adapters/checkpoints/https-checkpoints.js';
import { SyslogCheckpoints } from '../../src/adapters/checkpoints/syslog-checkpoints.js';
import { openCheckpoints } from '../../src/cli/compose/checkpoints.js';
import { createSelfSigned } from '../../src/cli/dev/self-signed.js';
import { loadConfig } from '../../src/config/load.js';
import { readCheckpoint } from '../../src/evidence/checkpoint.js';
import { NoteSigner } from '../../src/evidence/signed-note.js';
import { CheckpointLog, type CheckpointDestination } from '../../src/telemetry/checkpoints/checkpoint-log.js';
import { createLogger } from '../../src/telemetry/logger.js';
import { openLog, until } from '../telemetry/open-log.js';
import { requestLine } from '../audit/sample-log.js';

const certificate = await createSelfSigned(new Date());
const ca = Buffer.from(certificate.cert);
const line = '{"note":"gw.example/a\\n1\\n"}';
const token = 'a-token-of-the-tests-that-nobody-repeats';

interface Post {
  readonly method: string | undefined;
  readonly target: string | undefined;
  readonly headers: http.IncomingHttpHeaders;
  readonly body: string;
}

/** An endpoint that records requests and responds with `status`; null: it does not respond. */
async function startEndpoint(t: Test) {
  const endpoint = { posts: [] as Post[], url: '', status: 201 as number | null };
  const server = https.createServer(certificate, (request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const { method, url: target, headers } = request;
      endpoint.posts.push({ method, target, headers, body: Buffer.concat(chunks).toString() });
      if (endpoint.status !== null) response.writeHead(endpoint.status, { location: '/elsewhere' }).end(`no ${token}`);
    });
  });
  await listen(t, server);
  t.teardown(() => {
    server.closeAllConnections();
  });
  endpoint.url = `https://localhost:${portOf(server)}/checkpoints`;
  return endpoint;
}

async function listen(t: Test, server: net.Server): Promise<void> {
  server.listen(0, 'localhost');
  await once(server, 'listening');
  t.teardown(() => server.close());
}

function portOf(server: net.Server): number {
  return (server.address() as AddressInfo).port;
}

/** A syslog server that sends `greeting` on each connection, and records the bytes that it receives there. */
async function startSyslog(t: Test, kind: 'tls' | 'tcp', greeting = 'nobody asked for this\n') {
  const syslog = { received: [] as string[], sockets: [] as net.Socket[], url: '' };
  const take = (socket: net.Socket): void => {
    const index = syslog.sockets.push(socket) - 1;
    syslog.received[index] = '';
    socket.write(greeting); // a client that does not read it does not see the FIN that follows
    socket.on('data', (chunk: Buffer) => {
      syslog.received[index] = (syslog.received[index] ?? '') + chunk.toString();
    });
    socket.on('error', () => undefined);
    t.teardown(() => socket.destroy());
  };
  const server = kind === 'tls' ? tls.createServer(certificate, take) : net.createServer(take);
  server.on('tlsClientError', () => undefined);
  await listen(t, server);
  syslog.url = `${kind}://localhost:${portOf(server)}`;
  return syslog;
}

function openHttps(t: Test, url: string, over: object = {}): HttpsCheckpoints {
  const place = new HttpsCheckpoints({ ...{ url, token, ca }, ...over });
  t.teardown(() => place.close());
  return place;
}

function openSyslog(t: Test, url: string, over: object = {}): SyslogCheckpoints {
  const now = (): number => Date.UTC(2026, 10, 20, 10, 0, 0, 7);
  const place = new SyslogCheckpoints({ ...{ url, ca, hostname: 'gw-1', now }, ...over });
  t.teardown(() => place.close());
  return place;
}

/** The messages of a connection, split by their length prefixes. */
function messagesIn(text: string): string[] {
  const messages: string[] = [];
  let rest = Buffer.from(text);
  while (rest.length > 0) {
    const digits = /^[1-9][0-9]* /.exec(rest.toString())?.[0] ?? '';
    const end = digits.length + Number(digits);
    if (digits === '' || end > rest.length) break;
    messages.push(rest.subarray(digits.length, end).toString());
    rest = rest.subarray(end);
  }
  return messages;
}

/** A destination that stores nothing before this promise resolves. */
function hangingUntil(released: Promise<null>): CheckpointDestination {
  return { name: 'hanging', keep: () => released, close: () => Promise.resolve() };
}

t.test('an HTTPS endpoint gets each checkpoint as JSON, which counts as stored on a 2xx response', async (t) => {
  const endpoint = await startEndpoint(t);
  const place = openHttps(t, endpoint.url);
  t.equal(await place.keep(line), null);
  t.match(endpoint.posts, [
    {
      ...{ method: 'POST', target: '/checkpoints', body: line },
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    },
  ]);
  for (const status of [302, 307, 400, 404, 500, 503]) {
    endpoint.status = status;
    t.equal(await place.keep(line), `the endpoint responded with status ${status}`);
  }
  t.equal(endpoint.posts.length, 7, 'no redirect was followed');
  endpoint.status = 204;
  t.equal(await place.keep(line), null);
  await openHttps(t, endpoint.url, { token: null }).keep(line);
  t.notMatch(endpoint.posts.at(-1)?.headers, { authorization: /./ });
});

t.test('an HTTPS endpoint without a trusted certificate gets nothing, and a hung one times out', async (t) => {
  const endpoint = await startEndpoint(t);
  t.match(await openHttps(t, endpoint.url, { ca: null }).keep(line), /cannot be reached: .*SELF_SIGNED/);
  t.match(await openHttps(t, endpoint.url.replace('localhost', '127.0.0.2')).keep(line), /^the endpoint cannot be/);
  t.same(endpoint.posts, []);
  endpoint.status = null;
  const place = openHttps(t, endpoint.url, { timeoutMilliseconds: 2_000 });
  t.equal(await place.keep(line), 'the endpoint cannot be reached: timeout');
  endpoint.status = 200;
  t.equal(await place.keep(line), null, 'it is reached again');
  t.equal(
    await openHttps(t, 'https://localhost:1/').keep(line),
    'the endpoint cannot be reached: ECONNREFUSED',
    "a problem contains neither the token nor the endpoint's response body",
  );
});

for (const kind of ['tls', 'tcp'] as const) {
  t.test(`a syslog server over ${kind} gets RFC 5424 messages with octet-counting framing`, async (t) => {
    const syslog = await startSyslog(t, kind);
    const place = openSyslog(t, syslog.url);
    t.equal(await place.keep(line), null);
    t.equal(await place.keep('{"note":"…"}'), null);
    await until(() => messagesIn(syslog.received[0] ?? '').length === 2);
    const header = `<109>1 2026-11-20T10:00:00.007Z gw-1 merchant-gateway ${process.pid} checkpoint - `;
    t.same(messagesIn(syslog.received[0] ?? ''), [header + line, `${header}{"note":"…"}`]);
    t.equal(syslog.sockets.length, 1, 'over one connection');
  });

  t.test(`a syslog server over ${kind} that closed its connection gets the next checkpoint on a new one`, async (t) => {
    const syslog = await startSyslog(t, kind);
    const place = openSyslog(t, syslog.url);
    t.equal(await place.keep(line), null);
    for (const [index, end] of (['end', 'destroy'] as const).entries()) {
      await until(() => (syslog.received[index] ?? '') !== '');
      const closed = syslog.sockets[index];
      closed?.[end]();
      if (closed?.closed === false) await once(closed, 'close');
      // Gives the FIN time to arrive. Ten short waits, because a pause of the whole process can use up one wait.
      for (let turn = 0; turn < 10; turn += 1) await new Promise((resolve) => setTimeout(resolve, 5));
      t.equal(await place.keep(line), null);
      await until(() => (syslog.received[index + 1] ?? '') !== '');
    }
    t.equal(syslog.sockets.length, 3);
  });
}

t.test('a syslog server without a trusted certificate gets nothing, and a hung one times out', async (t) => {
  const syslog = await startSyslog(t, 'tls');
  t.match(await openSyslog(t, syslog.url, { ca: null }).keep(line), /cannot be reached: .*SELF_SIGNED/);
  t.same(syslog.received.join(''), '');
  const silent = await startSyslog(t, 'tcp', '');
  const place = openSyslog(t, silent.url.replace('tcp:', 'tls:'), { timeoutMilliseconds: 100 });
  t.equal(await place.keep(line), 'the server cannot be reached: timeout');
  t.notMatch(silent.received.join(''), 'note', 'nothing in plain text');
  t.equal(await openSyslog(t, 'tls://localhost:1').keep(line), 'the server cannot be reached: ECONNREFUSED');
});

t.test(
  'a gateway opens the checkpoint destinations of its configuration, and its log names the one that fails',
  async (t) => {
    const [endpoint, syslog] = [await startEndpoint(t), await startSyslog(t, 'tls')];
    endpoint.status = 507;
    const directory = t.testdir({ 'ca.pem': certificate.cert, token: `${token}\n` });
    const caFile = `${directory}/ca.pem`;
    const config = loadConfig({
      presets: {
        accessLog: {
          checkpoints: {
            ...{ name: 'gw', keyFile: `${directory}/key.pem`, everySeconds: 1 },
            https: { url: endpoint.url, tokenFile: `${directory}/token`, caFile },
            syslog: { url: syslog.url, caFile },
          },
        },
      },
    });
    const logged: unknown[][] = [];
    const note = (...args: unknown[]): number => logged.push(args);
    const logger = { ...createLogger('silent'), info: note, error: note } as unknown as ReturnType<typeof createLogger>;
    const checkpoints = await openCheckpoints(config, logger);
    const log = openLog(`${directory}/access.log`, { checkpoints });
    await until(() => endpoint.posts.length > 0 && messagesIn(syslog.received[0] ?? '').length > 0);
    await until(() => logged.length > 1);
    t.match(logged[1], [
      { place: endpoint.url, problem: 'the endpoint responded with status 507' },
      /cannot be written/,
    ]);
    t.match(endpoint.posts[0]?.headers.authorization, `Bearer ${token}`);
    t.match(syslog.received[0], new RegExp(` ${hostname()} merchant-gateway `));
    endpoint.status = 200;
    await until(() => logged.length > 2);
    t.match(logged[2], [{ place: endpoint.url }, /written again/]);
    t.notMatch(JSON.stringify(logged), token);
    await log.close(5_000);
  },
);

t.test('a destination closed during its connect leaves no connection behind', async (t) => {
  const silent = await startSyslog(t, 'tcp', '');
  const place = openSyslog(t, silent.url.replace('tcp:', 'tls:'));
  const kept = place.keep(line);
  await until(() => silent.sockets.length > 0);
  const began = performance.now();
  await place.close();
  t.match(await kept, 'cannot be reached');
  t.ok(performance.now() - began < 5_000, 'without waiting for the timeout of ten seconds');
});

t.test('each destination stores the checkpoints of a log, independently of the others', async (t) => {
  const [endpoint, syslog] = [await startEndpoint(t), await startSyslog(t, 'tls')];
  let release = (): void => undefined;
  const released = new Promise<null>((resolve) => {
    release = () => {
      resolve(null);
    };
  });
  const hanging = hangingUntil(released);
  const problems: (readonly [string, string | null])[] = [];
  endpoint.status = 503;
  const instance = NoteSigner.inMemory('gw');
  const checkpoints = new CheckpointLog({
    ...{ instance, places: [hanging, openHttps(t, endpoint.url), openSyslog(t, syslog.url)], everyMilliseconds: 5 },
    onProblem: (place, problem) => problems.push([place, problem]),
  });
  const log = openLog(`${t.testdir()}/access.log`, { checkpoints });
  await until(() => messagesIn(syslog.received[0] ?? '').length > 1 && checkpoints.status.problem !== null);
  t.equal(checkpoints.status.problem, `${endpoint.url}: the endpoint responded with status 503`);
  endpoint.status = 200;
  log.write(requestLine());
  await until(() => checkpoints.status.problem === null);
  t.same(problems, [
    [endpoint.url, 'the endpoint responded with status 503'],
    [endpoint.url, null],
  ]);
  const closing = log.close(30_000);
  const newest = (): string[] => {
    const sent = messagesIn(syslog.received[0] ?? '').map((message) => message.slice(message.indexOf('{')));
    return [endpoint.posts.map(({ body }) => body), sent].map((kept) => {
      const last = kept.at(-1);
      if (last === undefined) return '';
      const { note } = JSON.parse(last) as { note: string };
      return readCheckpoint(note, [instance.key]).occasion;
    });
  };
  // The endpoint and the syslog server have the last checkpoint of the run. The hanging destination does not.
  await until(() => newest().every((occasion) => occasion === 'end'));
  t.ok(checkpoints.status.ageMilliseconds > 0, 'the age is that of the destination furthest behind');
  release();
  await closing;
});

t.test('a destination that hangs does not delay the shutdown', async (t) => {
  const checkpoints = new CheckpointLog({
    ...{ instance: NoteSigner.inMemory('gw'), places: [hangingUntil(new Promise<null>(() => undefined))] },
    everyMilliseconds: 5,
  });
  const log = openLog(`${t.testdir()}/access.log`, { checkpoints });
  const began = performance.now();
  await log.close(500);
  t.ok(performance.now() - began < 5_000);
});
