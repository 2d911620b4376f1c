import { readFileSync, writeFileSync } from 'node:fs';
import tls from 'node:tls';
import type { Test } from 'tap';
import { SignedLog } from '../audit/signed-log.js';
import { openLog } from '../telemetry/open-log.js';
import { makeCertificate } from './certificates.js';
import { ask, connect, exchangeBytes, liveKey, requestBytes, startTestGateway, startUpstream } from './harness.js';

/**
 * Writes every kind of access-log line. A gateway writes the lines of requests that were accepted, failed at the
 * upstream, were rejected by a rule or by the HTTP parser, used mutual TLS, or were aggregated. A second log adds the
 * checkpoints of a rotation.
 * @returns the lines; together they contain every field that a line can have
 */
export async function everyKindOfLine(t: Test): Promise<unknown[]> {
  const upstream = await startUpstream(t);
  const { respond } = upstream;
  upstream.respond = (request, response, body) => {
    if (request.url?.endsWith('/reset') === true) request.socket.destroy();
    else respond(request, response, body);
  };
  const client = await makeCertificate();
  const folder = t.testdir({ 'ca.pem': client.cert });
  const file = `${folder}/access.log`;
  writeFileSync(file, 'a broken line');
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    accessLog: openLog(file, { origin: { version: '1.0.0', node: 'gw-1:7', host: 'gw-1' } }),
    logSecret: Buffer.from('a secret of this test'),
    config: {
      trustedProxies: ['127.0.0.1'],
      throttle: { badKeys: 2 },
      listen: { https: { clientCertificates: 'request', clientCaFile: `${folder}/ca.pem` } },
    },
    torExits: ['198.51.100.9'],
    geoIp: {
      locate: () => ({ countryIsoCode: 'SE', asNumber: 64_500 }),
      isTorExit: () => false,
      close: () => undefined,
    },
  });
  const headers = [
    ['x-api-key', liveKey],
    ['user-agent', 'test'],
  ] as const;
  await ask(gateway, { headers });
  await ask(gateway, { headers, path: '/nowhere' });
  await ask(gateway, { headers, path: '/v1/dev/customers/reset' });
  await ask(gateway, { headers: [...headers, ['x-forwarded-for', '198.51.100.9']] });
  await exchangeBytes(connect(gateway.https, gateway.ca), 'garbage\r\n\r\n');
  for (let count = 0; count < 3; count += 1) await ask(gateway, { headers: [['x-forwarded-for', '198.51.100.8']] });
  await exchangeBytes(tls.connect({ ...client, port: gateway.https, ca: gateway.ca }), requestBytes({}));
  await gateway.drain();
  const signed = new SignedLog(folder, 'signed.log');
  const { log } = signed.open(0);
  await signed.rotate(log, `${folder}/signed.log.1`);
  await log.close(30_000);
  const texts = [readFileSync(file, 'utf8').replace(/^.*\n/, ''), readFileSync(`${folder}/signed.log.1`, 'utf8')];
  const lines = [...texts, signed.read().toString()].join('').trimEnd().split('\n');
  return lines.map((line) => JSON.parse(line) as unknown);
}
