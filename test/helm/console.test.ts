import t from 'tap';
import { startProblems } from '../../src/config/config-notes.js';
import { loadConfig } from '../../src/config/load.js';
import { type Manifest, manifestsIn, render } from './render.js';

const origin = 'https://console.example.com:7443';
const administrators = [{ namespaceSelector: { matchLabels: { name: 'admins' } } }];

/** The registry's object of a kind. */
function objectIn(objects: readonly Manifest[], kind: string): unknown {
  return objects.find((one) => one.kind === kind && one.metadata.name.endsWith('-registry'));
}

t.test('the origin of the console opens its port, with the certificate of the registry', (t) => {
  const networkPolicy = { enabled: true, administrators };
  const values = { config: { registry: { console: { origin } } }, networkPolicy };
  const objects = manifestsIn(render('registry-alone', values));
  const { data } = objectIn(objects, 'ConfigMap') as { data: Record<string, string> };
  const env = { MERCHANT_GATEWAY_DATABASE_URL: 'postgres://database/registry' };
  const config = loadConfig({ text: data['gateway.yaml'] ?? '', env });
  t.match(config.registry.console, {
    ...{ origin, listen: { host: '0.0.0.0', port: 7443, certFile: '/etc/merchant-gateway/tls/tls.crt' } },
  });
  t.same(startProblems('registry', config), []);
  t.match(objectIn(objects, 'Service'), {
    spec: { ports: [{ name: 'api-tls' }, { name: 'console', port: 7443, appProtocol: 'https' }] },
  });
  t.match(objectIn(objects, 'NetworkPolicy'), {
    spec: { ingress: [{ ports: [{ port: 'api' }, { port: 'console' }] }] },
  });
  const without = manifestsIn(render('registry-alone', { networkPolicy }));
  for (const kind of ['Service', 'NetworkPolicy', 'Deployment'])
    t.notOk(JSON.stringify(objectIn(without, kind)).includes('console'), `${kind}: without it the port is closed`);
  t.end();
});
