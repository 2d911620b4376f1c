import { writeFileSync } from 'node:fs';
import t from 'tap';
import { readRegistryKeys, readServicesTokenKey } from '../../src/adapters/identity/signing-keys.js';
import { startProblems } from '../../src/config/config-notes.js';
import { loadConfig } from '../../src/config/load.js';
import { cluster } from './cluster.js';
import { type Manifest, manifestsIn, render } from './render.js';

const made = 'release-merchant-gateway-services-token-key';
const [privateKey, publicKey] = ['services-token-key.pem', 'services-token-key.pub'];
const inPod = '/etc/merchant-gateway/secrets';
const values = {
  secrets: { identitySigningKey: { existingSecret: 'identity' }, servicesTrailToken: { existingSecret: 'trail' } },
  services: { enabled: true },
  networkPolicy: { enabled: true },
};

/** Returns the object of this kind whose name ends with `end`. */
function objectIn(manifest: string, kind: string, end: string): Manifest {
  const all = manifestsIn({ stdout: manifest });
  const found = all.find((one) => one.kind === kind && one.metadata.name.endsWith(end));
  if (found === undefined) throw new Error(`no ${kind} ${end}`);
  return found;
}

function configIn(manifest: string, part: string) {
  const { data } = objectIn(manifest, 'ConfigMap', `-${part}`) as unknown as { data: Record<string, string> };
  return loadConfig({
    text: data['gateway.yaml'] ?? '',
    env: { MERCHANT_GATEWAY_DATABASE_URL: 'postgres://database/services' },
  });
}

t.test('an upgrade with the token of the services generates the key of services tokens, and keeps it', async (t) => {
  const { helm, secret } = await cluster(t);
  const without = { ...values, secrets: { ...values.secrets, servicesTrailToken: {} } };
  const hint = 'administrators create --name services --machine --role services';
  t.match((await helm('install', {}, without)).info.notes, hint);
  t.equal(secret(made), undefined, 'without the token nothing would use it');
  const { manifest, info } = await helm('upgrade', {}, values);
  t.match(info.notes, '--registry-token-file treasurer-token');
  t.notMatch(info.notes, 'wallets cannot be created or funded');
  const data = secret(made)?.data ?? {};
  const written = (name: string): string => {
    const file = `${t.testdirName}-${name}`;
    writeFileSync(file, Buffer.from(data[name] ?? '', 'base64'), { mode: 0o600 });
    return file;
  };
  const { keys } = await readRegistryKeys([written(publicKey)]);
  t.equal((await readServicesTokenKey(written(privateKey))).keyId, keys[0]?.kid, 'both belong together');
  await helm('upgrade', {}, values);
  t.same(secret(made)?.data, data);

  const registry = configIn(manifest, 'registry');
  t.same(registry.registry.servicesToken, { keyFile: `${inPod}/servicesTokenKey/${privateKey}` });
  t.same(startProblems('registry', registry), []);
  const services = configIn(manifest, 'services');
  t.match(services.services.operators, {
    registryKeys: [`${inPod}/servicesTokenPublicKey/${publicKey}`],
    trail: {
      url: 'https://release-merchant-gateway-registry:9443',
      tokenFile: `${inPod}/servicesTrailToken/token`,
      caFile: `${inPod}/registryCa/ca.crt`,
    },
  });
  const pods = (part: string) => JSON.stringify(objectIn(manifest, 'Deployment', `-${part}`));
  t.notMatch(pods('services'), privateKey, 'the pods of the services do not have the private key');
  t.match(pods('registry'), privateKey);
  for (const part of ['live', 'registry']) t.notMatch(pods(part), 'servicesTrailToken');
});

t.test('the services restart with a new CA of the registry, because they read it only at start', async (t) => {
  const { annotateSecret, helm } = await cluster(t);
  const renewAt = (one: object): string => /"merchant-gateway\/renew-at":"(\d+)"/.exec(JSON.stringify(one))?.[1] ?? '';
  const upgraded = async (): Promise<object> => {
    const { manifest } = await helm('upgrade', {}, values);
    const { spec } = objectIn(manifest, 'Deployment', '-services') as unknown as { spec: { template: object } };
    t.equal(renewAt(spec.template), renewAt(objectIn(manifest, 'Secret', '-registry-tls')));
    t.equal(renewAt(objectIn(manifest, 'Deployment', '-live')), '', 'the gateways do not have the CA');
    return spec.template;
  };
  const renewSecretAt = (time: string): void => {
    annotateSecret('release-merchant-gateway-registry-tls', { 'merchant-gateway/renew-at': time });
  };
  await helm('install', {}, values);
  renewSecretAt('4000000000');
  const before = await upgraded();
  t.same(await upgraded(), before, 'while the CA stays, they do not restart');
  renewSecretAt('1700000000');
  t.notSame(await upgraded(), before);
});

t.test('without the cluster, and for a registry in another release, Secrets of the operator are used', (t) => {
  const servicesTokenKey = { existingSecret: 'pair' };
  const own = render('backing-services', { ...values, secrets: { ...values.secrets, servicesTokenKey } });
  t.equal(own.status, 0, own.stderr);
  t.match(JSON.stringify(objectIn(own.stdout, 'Deployment', '-services')), '"secretName":"pair"');
  t.equal(configIn(own.stdout, 'services').services.operators.trail?.caFile, null);

  const url = 'https://registry.example:9444';
  const apart = {
    environments: { live: { enabled: false } },
    ...{ registry: { enabled: false }, torExits: { cronJob: { enabled: false } } },
    config: {
      identity: { publicKeysUrl: 'http://gateways:9090/keys' },
      services: { operators: { registryKeys: ['/etc/next.pub'], trail: { url } } },
    },
  };
  const ca = { registryCa: { existingSecret: 'ca' } };
  const alone = render('backing-services', {
    ...{ ...values, ...apart },
    secrets: { ...values.secrets, ...ca, servicesTokenKey },
  });
  t.equal(alone.status, 0, alone.stderr);
  t.match(configIn(alone.stdout, 'services').services.operators, {
    registryKeys: [`${inPod}/servicesTokenPublicKey/${publicKey}`, '/etc/next.pub'],
    trail: { url, caFile: `${inPod}/registryCa/ca.crt` },
  });
  t.end();
});
