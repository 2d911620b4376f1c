import t from 'tap';
import { parse } from 'yaml';
import { loadConfig } from '../../src/config/load.js';
import { manifestsIn, render } from './render.js';
import type { Manifest } from './render.js';

const snapshotFile = '/var/lib/merchant-gateway/var/tor-exits.json';
const exits = 'https://check.torproject.org/torbulkexitlist';

function objectsOf(profile: string, values: object): Manifest[] {
  const rendered = render(profile, values);
  if (rendered.status !== 0) throw new Error(rendered.stderr);
  return manifestsIn(rendered);
}

/** Returns the configuration in the ConfigMap whose name ends with `end`. */
function configOf(manifests: readonly Manifest[], end: string): Record<string, unknown> {
  const map = manifests.find(({ kind, metadata: { name } }) => kind === 'ConfigMap' && name.endsWith(end));
  return parse((map as unknown as { data: Record<string, string> }).data['gateway.yaml'] ?? '') as never;
}

function egressPortsOf(manifests: readonly Manifest[], end: string): number[][] {
  const policy = manifests.find(({ kind, metadata: { name } }) => kind === 'NetworkPolicy' && name.endsWith(end));
  const { egress } = (policy as unknown as { spec: { egress: { ports: { port: number }[] }[] } }).spec;
  return egress.map(({ ports }) => ports.map(({ port }) => port));
}

t.test("an environment's services override those of the chart", (t) => {
  const upstreams = Object.fromEntries(
    ['transactions', 'payouts', 'customers'].map((name) => [name, { url: `http://${name}.core:8080` }]),
  );
  const manifests = objectsOf('backing-services', {
    environments: { live: { gateway: { config: { upstreams } } }, test: { enabled: true } },
  });
  t.same(configOf(manifests, '-live').upstreams, upstreams);
  t.match(configOf(manifests, '-test').upstreams, { payouts: { url: /^http:\/\/release-merchant-gateway-services:/ } });
  t.end();
});

t.test('the registry waits for as long as any gateway uses stale records', (t) => {
  const cache = (maxStaleSeconds: number) => ({ config: { keyStore: { cache: { maxStaleSeconds } } } });
  const secondsWith = (profile: string, values: object): unknown => {
    const { keyStore } = configOf(objectsOf(profile, values), '-registry');
    return (keyStore as { cache: { maxStaleSeconds: number } }).cache.maxStaleSeconds;
  };
  t.equal(secondsWith('both-environments', {}), 60, 'as in config');
  t.equal(secondsWith('both-environments', { environments: { live: { gateway: cache(300) } } }), 300);
  t.equal(secondsWith('both-environments', { environments: { test: { gateway: cache(10) } } }), 60);
  t.equal(secondsWith('both-environments', { gateway: cache(90) }), 90);
  const { keyStore } = loadConfig({ text: '' });
  t.equal(secondsWith('live-tls', {}), keyStore.cache.maxStaleSeconds, 'the default of the product');
  t.end();
});

t.test("an environment's Tor exit sources complement those of a ConfigMap, and have egress", (t) => {
  const environments = { live: { gateway: { config: { torExits: { sources: [exits] } } } } };
  const manifests = objectsOf('live-tls', { environments });
  const file = '/etc/merchant-gateway/tor-exits/tor-exits.txt';
  t.same(configOf(manifests, '-live').torExits, { sources: [file, exits], snapshotFile });
  const ways = egressPortsOf(manifests, '-live');
  t.equal(ways.length, egressPortsOf(objectsOf('live-tls', {}), '-live').length + 1);
  t.same(ways.at(-1), [80, 443]);
  t.end();
});

t.test('the CronJob fetches the sources of all environments through all their proxies', (t) => {
  const own = 'https://exits.example/list';
  const manifests = objectsOf('live-tls', {
    torExits: { existingConfigMap: '', cronJob: { enabled: true } },
    gateway: { config: { trustedProxies: ['10.1.0.0/16'], torExits: { sources: [exits] } } },
    environments: {
      test: { enabled: true, gateway: { config: { trustedProxies: ['10.2.0.0/16'], torExits: { sources: [own] } } } },
    },
  });
  t.match(configOf(manifests, '-tor-exits'), {
    torExits: { sources: [exits, own] },
    trustedProxies: ['10.1.0.0/16', '10.2.0.0/16'],
  });
  t.end();
});

t.test('the release test avoids checks that need a proxy header or a client certificate', (t) => {
  const asked = (profile: string, config: object): string[] => {
    const manifests = objectsOf(profile, { environments: { live: { gateway: { config } } } });
    const pod = manifests.find(({ kind }) => kind === 'Pod') as unknown as {
      spec: { containers: { env: { name: string; value: string }[] }[] };
    };
    const targets = pod.spec.containers[0]?.env.find(({ name }) => name === 'TARGETS')?.value ?? '';
    return (JSON.parse(targets) as { url: string }[]).map(({ url }) => new URL(url).protocol + new URL(url).port);
  };
  const [management, registry] = ['http:9090', 'https:9443'];
  t.same(asked('live-tls', {}), [management, 'https:', 'http:', registry]);
  t.same(asked('live-tls', { trustedProxies: ['10.0.0.1'] }), [management, 'https:', registry]);
  t.same(asked('live-tls', { trustedProxies: ['10.0.0.1'], proxyProtocol: true }), [management, registry]);
  const certificate = { listen: { https: { clientCertificates: 'require' } } };
  t.same(asked('live-tls', certificate), [management, 'http:', registry]);
  t.same(asked('backing-services', {}), [management, registry]);
  t.end();
});
