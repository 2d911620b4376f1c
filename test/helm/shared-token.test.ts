import t from 'tap';
import { startProblems } from '../../src/config/config-notes.js';
import { loadConfig } from '../../src/config/load.js';
import { manifestsIn, render } from './render.js';

/** A release of only the registry, and the registry's configuration. */
function registryWith(values: object) {
  const rendered = render('registry-alone', values);
  if (rendered.status !== 0) throw new Error(rendered.stderr);
  const map = manifestsIn(rendered).find(
    ({ kind, metadata: { name } }) => kind === 'ConfigMap' && name.endsWith('-registry'),
  ) as unknown as { data: Record<string, string> };
  const env = { MERCHANT_GATEWAY_DATABASE_URL: 'postgres://database/registry' };
  return { text: rendered.stdout, config: loadConfig({ text: map.data['gateway.yaml'] ?? '', env }) };
}

t.test('a registry that does not accept the shared token neither needs nor mounts it', (t) => {
  // Helm reads `off` without quotes as false.
  for (const bootstrap of ['off', false]) {
    for (const secrets of [{ adminToken: { existingSecret: '' } }, {}]) {
      const { text, config } = registryWith({ config: { registry: { bootstrap } }, secrets });
      t.match(config.registry, { bootstrap: 'off', tokenFile: null });
      t.same(startProblems('registry', config), []);
      t.notMatch(text, 'admin-token', 'the Secret may be deleted');
    }
  }
  t.end();
});

t.test('a registry that accepts the shared token mounts it', (t) => {
  for (const registry of [{}, { bootstrap: 'on' }, { bootstrap: true }]) {
    const { text, config } = registryWith({ config: { registry } });
    t.match(config.registry, { bootstrap: 'on', tokenFile: '/etc/merchant-gateway/secrets/adminToken/token' });
    t.match(text, 'secretName: admin-token');
  }
  t.end();
});
