import { readFileSync, writeFileSync } from 'node:fs';
import tls from 'node:tls';
import { EcsVersion } from '@elastic/ecs';
import t from 'tap';
import ts from 'typescript';
import { SignedLog } from '../audit/signed-log.js';
import { openLog } from '../telemetry/open-log.js';
import { makeCertificate } from './certificates.js';
import { ask, connect, exchangeBytes, liveKey, requestBytes, startTestGateway, startUpstream } from './harness.js';

/** What ECS allows for `event.category` `api` and `process`. */
const allowedTypes: Readonly<Record<string, readonly string[]>> = {
  api: ['access', 'admin', 'allowed', 'change', 'creation', 'deletion', 'denied', 'end', 'info', 'start', 'user'],
  process: ['access', 'change', 'end', 'info', 'start'],
};

interface Line {
  readonly gateway?: unknown;
  readonly ecs: { readonly version: string };
  readonly event: { readonly category: readonly string[]; readonly type: readonly string[]; readonly code?: string };
  readonly tls?: { readonly version?: string };
}

t.test('each field of a line is one of ECS, or below `gateway`, and has a value that ECS allows', async (t) => {
  const upstream = await startUpstream(t);
  const { respond } = upstream;
  upstream.respond = (request, response, body) => {
    if (request.url?.endsWith('/reset') === true) request.socket.destroy();
    else respond(request, response, body);
  };
  const client = await makeCertificate();
  const folder = t.testdir({ 'ca.pem': client.cert });
  const file = `${folder}/access.log`;
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
      whereabouts: () => ({ countryIsoCode: 'SE', asNumber: 64_500 }),
      isTorExit: () => false,
      close: () => undefined,
    },
  });
  const headers = [
    ['x-api-key', liveKey],
    ['user-agent', 'test'],
  ] as const;
  await ask(gateway, { headers });
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
  const lines = [file, `${folder}/signed.log.1`, signed.file]
    .flatMap((name) => readFileSync(name, 'utf8').trimEnd().split('\n'))
    .map((line) => JSON.parse(line) as Line);
  t.ok(lines.length > 10);

  const typed = lines.map(
    (line, index) => `export const line${index}: Ecs = ${JSON.stringify({ ...line, gateway: undefined })};`,
  );
  writeFileSync(`${folder}/lines.ts`, `import type { Ecs } from '@elastic/ecs';\n${typed.join('\n')}\n`);
  const options = { noEmit: true, strict: true, skipLibCheck: true, moduleResolution: ts.ModuleResolutionKind.Bundler };
  const program = ts.createProgram([`${folder}/lines.ts`], { ...options, module: ts.ModuleKind.ESNext, types: [] });
  const problems = ts
    .getPreEmitDiagnostics(program)
    .map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n'));
  t.same(problems, []);

  for (const { event, ecs, tls } of lines) {
    t.equal(ecs.version, EcsVersion);
    for (const category of event.category)
      t.same(
        event.type.filter((type) => allowedTypes[category]?.includes(type) !== true),
        [],
        category,
      );
    if (tls !== undefined) t.match(tls.version, /^1\.[23]$/);
  }
  const failed = lines.find(({ event }) => event.code === 'upstream_failed');
  t.same(failed?.event.type, ['access', 'allowed'], 'that a service failed denies nobody anything');
});
