import { createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import t, { type Test } from 'tap';
import { HttpsWebhook } from '../../src/adapters/webhooks/https-webhook.js';
import { openRegistryDatabase } from '../../src/registry/registry-database.js';
import type { UnusualFinding } from '../../src/registry/unusual/schema.js';
import {
  countUndelivered,
  enqueueWebhooks,
  listUndelivered,
  WebhookSender,
} from '../../src/registry/unusual/webhooks.js';
import { ManualTime } from './manual-time.js';
import { emptyList } from '../empty-list.js';
import { startServer } from '../start-server.js';

const finding = { id: 'unu_1', keyId: 'key_1', rule: 'surge' } as UnusualFinding;
const [secret, former] = ['a secret of 32 bytes for webhooks', 'the former secret, of 32 bytes!!!'].map((text) =>
  Buffer.from(text),
);
if (secret === undefined || former === undefined) throw new Error('there are two secrets');

interface Received {
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

/** A server that receives webhooks, and responds as the test says. */
async function receiver(t: Test) {
  const received: Received[] = [];
  const at = { respond: (response: ServerResponse): void => void response.writeHead(204).end() };
  const url = await startServer(t, (request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      received.push({ headers: request.headers, body: Buffer.concat(chunks).toString('utf8') });
      at.respond(response);
    });
  });
  return { received, at, url: `${url}/hook?of=us` };
}

/**
 * Verifies a message as the specification of Standard Webhooks says, without the code of the product.
 * https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
 */
function isSigned({ headers, body }: Received, key: Buffer, now: number): boolean {
  const id = String(headers['webhook-id']);
  const timestamp = String(headers['webhook-timestamp']);
  if (!/^\d+$/.test(timestamp) || Math.abs(Number(timestamp) * 1_000 - now) > 5 * 60_000) return false;
  const expected = createHmac('sha256', key)
    .update(Buffer.from(`${id}.${timestamp}.${body}`))
    .digest();
  return String(headers['webhook-signature'])
    .split(' ')
    .map((one) => one.split(','))
    .filter(([version]) => version === 'v1')
    .map(([, signature = '']) => Buffer.from(signature, 'base64'))
    .some((given) => given.length === expected.length && timingSafeEqual(given, expected));
}

async function fixture(t: Test, secrets: readonly Buffer[] = [secret as Buffer], timeoutMilliseconds = 30_000) {
  const server = await receiver(t);
  const time = new ManualTime();
  const database = await openRegistryDatabase({ url: 'sqlite::memory:', generation: 'g' });
  const webhook = new HttpsWebhook({ url: server.url, secrets, now: () => time.now(), timeoutMilliseconds });
  t.teardown(async () => {
    await webhook.close();
    await database.destroy();
  });
  const target = {
    id: 'one',
    name: 'hooks.example',
    send: (message: { id: string; body: string }) => webhook.send(message),
  };
  const targets = [target];
  const logged: string[] = [];
  const log = (_details: object, message: string): void => void logged.push(message);
  const logger = { error: log, warn: log, info: log };
  const passed = { milliseconds: 0 };
  const monotonic = (): number => passed.milliseconds;
  const sender = new WebhookSender({ database, clock: time, timers: time, targets, keepDays: 400, logger, monotonic });
  const enqueue = () => enqueueWebhooks(database, [finding], ['one'], time.now());
  const rows = () => database.selectFrom('webhooks').selectAll().execute();
  return { ...server, time, passed, database, sender, enqueue, rows, targets, logged, webhook };
}

t.test('a finding is sent with the headers of Standard Webhooks, and is then forgotten', async (t) => {
  const { sender, enqueue, rows, received, time } = await fixture(t);
  await enqueue();
  await sender.round();
  t.same(await rows(), []);
  const [message] = received;
  t.equal(received.length, 1);
  t.ok(message && isSigned(message, secret, time.now()));
  t.notOk(message && isSigned(message, former, time.now()));
  t.notOk(message && isSigned({ ...message, body: `${message.body} ` }, secret, time.now()), 'a changed body');
  t.match(message?.headers, { 'content-type': 'application/json', 'webhook-id': /^msg_[0-9A-Z]{26}$/ });
  t.match(JSON.parse(message?.body ?? ''), { type: 'key.unusual-use', timestamp: /Z$/, data: { id: 'unu_1' } });
  await sender.round();
  t.equal(received.length, 1, 'once');
});

t.test('during a rotation, both secrets sign', async (t) => {
  const { sender, enqueue, received, time } = await fixture(t, [secret, former]);
  await enqueue();
  await sender.round();
  for (const key of [secret, former]) t.ok(received[0] && isSigned(received[0], key, time.now()));
});

t.test('a failed message is sent again with growing pauses and the same id, and is given up after a day', async (t) => {
  const { sender, enqueue, rows, received, time, at, database, targets, logged } = await fixture(t);
  at.respond = (response) => void response.writeHead(500).end('secret detail');
  await enqueue();
  await sender.round();
  await sender.round();
  t.equal(received.length, 1, 'not before the pause');
  t.match(await rows(), [{ attempts: 1, problem: 'the endpoint responded with status 500', given_up_at: null }]);
  const times: number[] = [time.now()];
  for (let minute = 0; minute < 26 * 60; minute += 1) {
    time.advance(60_000);
    const before = received.length;
    await sender.round();
    if (received.length > before) times.push(time.now());
  }
  const pauses = times.slice(1).map((now, index) => now - (times[index] ?? 0));
  t.ok(
    pauses.every((pause, index) => pause >= (pauses[index - 1] ?? 0)),
    'growing',
  );
  t.equal(pauses.at(-1), 7_200_000);
  t.equal(new Set(received.map(({ headers }) => headers['webhook-id'])).size, 1);
  t.match(await listUndelivered(database, targets), [{ target: 'hooks.example', nextAt: null, givenUpAt: /Z$/ }]);
  t.equal(await countUndelivered(database, time.now()), 1);
  t.match(logged, [/not delivered; retrying/, /given up after a day/]);
  const attempts = received.length;
  time.advance(31 * 24 * 3_600_000);
  await sender.round();
  t.equal(received.length, attempts);
  t.same(await rows(), [], 'deleted later');
});

t.test('a message that was accepted late is forgotten', async (t) => {
  const { sender, enqueue, rows, received, time, at } = await fixture(t);
  at.respond = (response) => void response.writeHead(503).end();
  await enqueue();
  await sender.round();
  at.respond = (response) => void response.writeHead(200).end();
  time.advance(5_000);
  await sender.round();
  t.equal(received.length, 2);
  t.same(await rows(), []);
});

t.test('redirects are not followed, and endless, slow and forged responses end', async (t) => {
  const { sender, enqueue, rows, received, at, url } = await fixture(t, [secret], 3_000);
  const cases: Record<string, (response: ServerResponse) => void> = {
    'the endpoint responded with status 307': (response) => void response.writeHead(307, { location: url }).end(),
    'the endpoint cannot be reached: timeout': () => undefined,
    'the endpoint cannot be reached: UND_ERR_HEADERS_OVERFLOW': (response) =>
      void response.writeHead(200, { 'x-large': 'x'.repeat(64 * 1024) }).end(),
    'the endpoint cannot be reached: HTTPParserError': (response) => {
      response.socket?.end('this is not HTTP\r\n\r\n');
    },
  };
  for (const [problem, respond] of Object.entries(cases)) {
    at.respond = respond;
    await enqueue();
    const before = received.length;
    await sender.round();
    t.equal(received.length, before + 1, problem);
    t.ok(
      (await rows()).some((row) => row.problem === problem),
      `${problem}: ${JSON.stringify((await rows()).map((row) => row.problem))}`,
    );
  }
});

t.test('an accepted response is not read beyond its limit', async (t) => {
  const { sender, enqueue, received, at } = await fixture(t);
  let sent = 0;
  at.respond = (response) => {
    response.writeHead(200);
    const more = (): void => {
      while (sent < 256 * 1024 * 1024 && !response.destroyed) {
        sent += 64 * 1024;
        if (!response.write(Buffer.alloc(64 * 1024))) return void response.once('drain', more);
      }
    };
    more();
  };
  await enqueue();
  await sender.round();
  t.equal(received.length, 1);
  t.ok(sent < 64 * 1024 * 1024, `${sent} bytes were sent`);
});

t.test('two registries send a message once, and one that ends during an attempt loses none', async (t) => {
  const { sender, enqueue, rows, received, time, database, targets, at } = await fixture(t);
  const other = new WebhookSender({ database, clock: time, timers: time, targets, keepDays: 400 });
  await enqueue();
  await Promise.all([sender.round(), other.round()]);
  t.equal(received.length, 1);
  // Simulates a process that claimed the webhook, and then ended.
  at.respond = (response) => void response.writeHead(200).end();
  await enqueue();
  await database
    .updateTable('webhooks')
    .set({ attempts: 1, next_at: time.now() + 60_000 })
    .execute();
  await other.round();
  t.equal(received.length, 1);
  time.advance(60_000);
  await other.round();
  t.equal(received.length, 2);
  t.same(await rows(), []);
});

const dayMilliseconds = 24 * 3_600_000;

t.test('a message from before the clock was set back is counted, sent, and given up after a day', async (t) => {
  const { sender, enqueue, rows, received, time, at, database } = await fixture(t);
  at.respond = (response) => void response.writeHead(503).end();
  time.advance(500 * dayMilliseconds);
  await enqueue();
  time.advance(-500 * dayMilliseconds);
  t.equal(await countUndelivered(database, time.now()), 1);
  await sender.round();
  t.equal(received.length, 1);
  t.match(await rows(), [{ created_at: time.now(), next_at: time.now() + 5_000, given_up_at: null }]);
  time.advance(dayMilliseconds);
  await sender.round();
  t.match(await rows(), [{ attempts: 2, given_up_at: time.now() }]);
});

t.test('a clock that is set forward deletes no finding', async (t) => {
  const { sender, database, time, passed } = await fixture(t);
  const found = { id: 'unu_1', key_id: 'key_1', merchant_id: 'm_1', rule: 'surge', pattern: 'surge', message: '' };
  const place = { address: null, country: null, as_number: null };
  const undecided = { decision: null, decided_at: null, decided_by: null };
  const times = { found_at: time.now(), seen_at: time.now() };
  await database
    .insertInto('unusual_findings')
    .values({ ...found, ...place, ...undecided, ...times })
    .execute();
  const findings = () => database.selectFrom('unusual_findings').select('id').execute();
  await sender.round();
  time.advance(500 * dayMilliseconds);
  await sender.round();
  t.same(await findings(), [{ id: 'unu_1' }]);
  passed.milliseconds += 401 * dayMilliseconds;
  time.advance(3_600_000);
  await sender.round();
  t.same(await findings(), [], 'deleted when that time has passed');
});

t.test(
  'a message to a target that is no longer configured is given up after a day, and old findings are deleted',
  async (t) => {
    const { sender, rows, database, time } = await fixture(t);
    await enqueueWebhooks(database, [finding], ['former'], time.now());
    time.advance(25 * 3_600_000);
    await sender.round();
    t.match(await rows(), [{ problem: 'the target of the webhook is no longer configured' }]);
    t.match(await listUndelivered(database, []), emptyList);
  },
);
