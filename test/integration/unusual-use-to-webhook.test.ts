import { createHmac, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { withoutRedis } from '../adapters/redis-server.js';
import { startDeployment } from '../deployment/deployment.js';

t.test('a key that a gateway sees over plain HTTP reaches the webhook, signed', { skip: withoutRedis }, async (t) => {
  const messages: { headers: IncomingHttpHeaders; body: string }[] = [];
  const receiver = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => (body += chunk.toString()));
    request.on('end', () => {
      messages.push({ headers: request.headers, body });
      response.writeHead(204).end();
    });
  });
  const received = once(receiver, 'request');
  await once(receiver.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => {
    receiver.closeAllConnections();
    receiver.close();
  });

  const deployment = await startDeployment(t, { recordSecret: true });
  const secret = randomBytes(32);
  const secretFile = deployment.file('webhook-secret');
  await writeFile(secretFile, `whsec_${secret.toString('base64')}\n`, { mode: 0o600 });
  const url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/alerts`;
  await deployment.restartRegistry({ registry: { unusual: { webhooks: [{ url, secretFile }] } } });
  const merchant = (await deployment.admin('POST', '/merchants', { name: 'Shop' })).data;
  const id = String(merchant.id);
  await deployment.admin('PATCH', `/merchants/${id}`, { status: 'ACTIVE', goLive: true });
  const { key, keyId } = (await deployment.admin('POST', `/merchants/${id}/keys`, { environment: 'live' })).data;
  const gateway = await deployment.startGateway({ listen: { http: { host: '127.0.0.1', port: 0 } } });
  t.equal(await gateway.decide(String(key)), 200);

  const refused = await fetch(`http://127.0.0.1:${gateway.ports.http ?? 0}/v1/transactions`, {
    headers: { 'x-api-key': String(key) },
  });
  t.equal(refused.status, 401);
  await received;
  while (messages.length === 0) await new Promise((resolve) => setTimeout(resolve, 20));
  const [{ headers, body }] = messages as [(typeof messages)[0]];
  t.match(JSON.parse(body), { type: 'key.unusual-use', data: { keyId, merchantId: id, rule: 'plain-http' } });
  const signed = `${String(headers['webhook-id'])}.${String(headers['webhook-timestamp'])}.${body}`;
  t.equal(headers['webhook-signature'], `v1,${createHmac('sha256', secret).update(signed).digest('base64')}`);
  t.notOk(body.includes(String(key)), 'the message does not contain the key');
  t.match(await deployment.run('unusual', 'list', '--json'), new RegExp(`"keyId": ?"${String(keyId)}"`));
});
