import { once } from 'node:events';
import http, { type IncomingMessage, type OutgoingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { onEachDatabase } from '../database/each-database.js';
import { until } from '../registry/manual-time.js';
import { consoleFixture, origin } from './console-fixture.js';

const bearer = (token: string): OutgoingHttpHeaders => ({ authorization: `Bearer ${token}` });

/** Opens an event stream, by default that of the admin API. `text` of the result is all that has arrived so far. */
async function openStream(t: Test, port: number, headers: OutgoingHttpHeaders, path = '/stream') {
  const request = http.get({ port, path, headers });
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  t.teardown(() => request.destroy());
  const stream = { response, text: '', isEnded: false };
  response.setEncoding('utf8').on('data', (chunk: string) => (stream.text += chunk));
  response.on('error', () => undefined);
  response.on('close', () => (stream.isEnded = true));
  return stream;
}

onEachDatabase('a stream announces changes, to members only those of their merchant', async (t, url) => {
  const { app, createPerson, createMerchant, createKey, time, call } = await consoleFixture(t, url);
  const [own, foreign] = [await createMerchant(), await createMerchant({ name: 'Bea Traders' })];
  const [operator, member] = [
    await createPerson('ada', ['operator']),
    await createPerson('bea', ['merchant-viewer'], own.id),
  ];
  await app.listen({ host: '127.0.0.1', port: 0 });
  const { port } = app.server.address() as AddressInfo;
  const [all, some] = [
    await openStream(t, port, bearer(operator.token)),
    await openStream(t, port, bearer(member.token)),
  ];
  t.match(all.response, {
    statusCode: 200,
    headers: { 'content-type': 'text/event-stream', 'cache-control': 'no-store' },
  });
  await until(() => all.text.includes('event: open') && some.text.includes('event: open'));
  const [ofOwn, ofForeign] = [await createKey(own.id), await createKey(foreign.id)];
  const arrived = async (isSo: () => boolean): Promise<void> => {
    await until(async () => {
      time.advance(500);
      await new Promise((resolve) => setTimeout(resolve, 5));
      return isSo();
    });
  };
  await arrived(() => all.text.includes(ofForeign.keyId) && some.text.includes(ofOwn.keyId));
  t.match(
    all.text,
    new RegExp(`event: change\ndata: {"action":"key.created","merchantId":"${own.id}","keyId":"${ofOwn.keyId}"}`),
  );
  t.notOk(some.text.includes(ofForeign.keyId) || some.text.includes(foreign.id), 'a member hears of no other merchant');
  t.notOk(all.text.includes('svc_live'), 'a stream has no keys');

  await call('PATCH', `/administrators/${member.id}`, { body: { status: 'DISABLED' } });
  await arrived(() => some.isEnded);
  t.match(some.text, /event: ended\n/);
  t.notOk(all.isEnded);

  await app.close();
  await until(() => all.isEnded);
});

t.test('a caller has at most 20 streams', async (t) => {
  const { app, createPerson } = await consoleFixture(t, 'sqlite::memory:');
  const { token } = await createPerson('ada', ['operator']);
  await app.listen({ host: '127.0.0.1', port: 0 });
  const { port } = app.server.address() as AddressInfo;
  const streams = [];
  for (let count = 0; count < 20; count += 1) streams.push(await openStream(t, port, bearer(token)));
  const refused = await openStream(t, port, bearer(token));
  t.equal(refused.response.statusCode, 429);
  await until(() => refused.isEnded);
  t.match(refused.text, 'You have 20 open event streams, the maximum: close one of them');
  streams[0]?.response.destroy();
  await until(async () => {
    await new Promise((resolve) => setTimeout(resolve, 10));
    return (await openStream(t, port, bearer(token))).response.statusCode === 200;
  });
});

t.test('HEAD opens no stream', async (t) => {
  const { app, createPerson } = await consoleFixture(t, 'sqlite::memory:');
  const { token } = await createPerson('ada', ['operator']);
  await app.listen({ host: '127.0.0.1', port: 0 });
  const { port } = app.server.address() as AddressInfo;
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  t.teardown(() => {
    agent.destroy();
  });
  for (let count = 0; count < 25; count += 1) {
    const request = http.request({ agent, port, method: 'HEAD', path: '/stream', headers: bearer(token) }).end();
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    t.equal(response.statusCode, 405);
    await once(response.resume(), 'close');
  }
  t.equal((await openStream(t, port, bearer(token))).response.statusCode, 200);
});

// Regression: a failed attempt to open a stream counted as an open stream until its connection closed. A browser that
// had tried often during an outage reached the limit, and got 429 after the outage.
t.test('streams that could not be opened in an outage leave room for others', async (t) => {
  const { app, database, createPerson } = await consoleFixture(t, 'sqlite::memory:');
  const { token } = await createPerson('ada', ['operator']);
  await app.listen({ host: '127.0.0.1', port: 0 });
  const { port } = app.server.address() as AddressInfo;
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  t.teardown(() => {
    agent.destroy();
  });
  const open = async (): Promise<IncomingMessage> => {
    const request = http.get({ agent, port, path: '/stream', headers: bearer(token) });
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    return response;
  };
  await database.schema.alterTable('events').renameTo('away').execute();
  for (let count = 0; count < 25; count += 1) {
    const response = await open();
    t.ok((response.statusCode ?? 0) >= 500, `status ${response.statusCode}`);
    await once(response.resume(), 'close');
  }
  await database.schema.alterTable('away').renameTo('events').execute();
  const response = await open();
  t.equal(response.statusCode, 200);
  response.destroy();
});

t.test('a stream that a page opens by itself keeps no session open', async (t) => {
  const { console, ask, createPerson, signIn, time } = await consoleFixture(t, 'sqlite::memory:');
  const session = await signIn((await createPerson('ada', ['operator'])).token);
  await console.listen({ host: '127.0.0.1', port: 0 });
  const { port } = console.server.address() as AddressInfo;
  time.advance(29 * 60_000);
  const headers = { host: new URL(origin).host, cookie: `__Host-console=${session}` };
  t.equal((await openStream(t, port, headers, '/console/api/stream')).response.statusCode, 200);
  time.advance(60_000);
  t.equal((await ask('GET', '/console/api/me', { session })).status, 401);
});

// Regression: the periodic check ended the stream of an expired token, and then wrote a keep-alive comment to the ended
// stream. That write destroyed the stream before all of it was sent.
onEachDatabase('a stream whose token expires ends completely, with an event', async (t, url) => {
  const { app, call, createPerson, time } = await consoleFixture(t, url);
  const { id } = await createPerson('ada', ['operator']);
  const body = { name: 'short', administratorId: id, expiresInSeconds: 300 };
  const { token } = (await call<{ token: string }>('POST', '/tokens', { body })).body.data;
  await app.listen({ host: '127.0.0.1', port: 0 });
  const { port } = app.server.address() as AddressInfo;
  const stream = await openStream(t, port, bearer(token));
  await until(() => stream.text.includes('event: open'));
  time.advance(6 * 60_000);
  await until(() => stream.isEnded);
  t.match(stream.text, /event: ended\ndata: {}\n\n$/);
  t.ok(stream.response.complete, 'the response is not cut off');
});

t.test("one merchant's members leave streams for others", async (t) => {
  const { app, createMerchant, createPerson } = await consoleFixture(t, 'sqlite::memory:');
  const { id } = await createMerchant();
  await app.listen({ host: '127.0.0.1', port: 0 });
  const { port } = app.server.address() as AddressInfo;
  const statusWith = async (token: string) => (await openStream(t, port, bearer(token))).response.statusCode;
  for (const name of ['a', 'b', 'c', 'd', 'e']) {
    const { token } = await createPerson(name, ['merchant-viewer'], id);
    for (let count = 0; count < 20; count += 1) t.equal(await statusWith(token), 200);
  }
  const refused = await openStream(t, port, bearer((await createPerson('f', ['merchant-viewer'], id)).token));
  t.equal(refused.response.statusCode, 429);
  await until(() => refused.isEnded);
  t.match(refused.text, 'The members of your merchant have 100 open event streams, the maximum');
  t.equal(await statusWith((await createPerson('ada', ['operator'])).token), 200);
});
