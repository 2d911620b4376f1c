import { once } from 'node:events';
import http, { type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { onEachDatabase } from '../database/each-database.js';
import { until } from '../registry/manual-time.js';
import { consoleFixture } from './console-fixture.js';

/** Opens a stream of the admin API; `text` is what has arrived. */
async function openStream(t: Test, port: number, token: string) {
  const request = http.get({ port, path: '/stream', headers: { authorization: `Bearer ${token}` } });
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
  const [all, some] = [await openStream(t, port, operator.token), await openStream(t, port, member.token)];
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
  for (let count = 0; count < 20; count += 1) streams.push(await openStream(t, port, token));
  t.equal((await openStream(t, port, token)).response.statusCode, 429);
  streams[0]?.response.destroy();
  await until(async () => {
    await new Promise((resolve) => setTimeout(resolve, 10));
    return (await openStream(t, port, token)).response.statusCode === 200;
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
    const headers = { authorization: `Bearer ${token}` };
    const request = http.request({ agent, port, method: 'HEAD', path: '/stream', headers }).end();
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    t.equal(response.statusCode, 405);
    await once(response.resume(), 'close');
  }
  t.equal((await openStream(t, port, token)).response.statusCode, 200);
});
