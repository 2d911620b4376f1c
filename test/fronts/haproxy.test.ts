import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { testFront } from './cases.js';
import { connectClient, deploy, send } from './deployment.js';
import { haproxy } from './fixture.js';
import { testHeaderValues } from './header-values.js';

testHeaderValues(haproxy);
testFront(haproxy);

t.test('haproxy: a gateway that is not ready gets no requests', { skip: haproxy.missing }, async (t) => {
  const { front, gateway } = await deploy(t, haproxy);
  const client = connectClient(t, front);
  t.equal((await send(client, {})).status, 200);
  let end = (): void => undefined;
  const delay = new Promise<void>((resolve) => (end = resolve));
  const drained = gateway.drain(delay);
  const ready = await fetch(`http://127.0.0.1:${gateway.management}/readyz`);
  t.equal(ready.status, 503);
  let response = await send(client, {});
  for (; response.status === 200; response = await send(client, {})) await sleep(100);
  t.match(response, {
    status: 503,
    headers: { 'content-type': 'application/json; charset=utf-8', 'cache-control': 'no-store', 'retry-after': '1' },
    body: '{"success":false,"message":"Service temporarily unavailable","data":null}',
  });
  t.notOk('x-request-id' in response.headers, 'the response comes from HAProxy, not from the gateway');
  const served = gateway.lines.length;
  t.equal((await send(client, {})).status, 503);
  t.equal(gateway.lines.length, served, 'the gateway itself still accepts requests');
  end();
  await drained;
});
