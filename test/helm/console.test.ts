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

t.test('the wallets of the console open the way from the registry to the services', (t) => {
  const services = { url: 'https://services.example.com:7444', caFile: '/etc/services-ca/ca.crt' };
  const values = {
    config: { registry: { console: { origin, services } } },
    secrets: { servicesTokenKey: { existingSecret: 'pair' } },
    networkPolicy: { enabled: true, administrators },
  };
  const rendered = render('registry-alone', values);
  t.equal(rendered.status, 0, rendered.stderr);
  const objects = manifestsIn(rendered);
  const { data } = objectIn(objects, 'ConfigMap') as { data: Record<string, string> };
  const env = { MERCHANT_GATEWAY_DATABASE_URL: 'postgres://database/registry' };
  const config = loadConfig({ text: data['gateway.yaml'] ?? '', env });
  t.same(config.registry.console?.services, services);
  t.same(startProblems('registry', config), []);
  const egress = (text: unknown): boolean => JSON.stringify(text).includes('7444');
  const policyOf = (all: readonly Manifest[]) => (objectIn(all, 'NetworkPolicy') as { spec: { egress: object } }).spec;
  t.ok(egress(policyOf(objects).egress));
  const without = { ...values, config: { registry: { console: { origin } } } };
  t.notOk(egress(policyOf(manifestsIn(render('registry-alone', without))).egress));
  t.end();
});
