import { readFileSync } from 'node:fs';
import t from 'tap';
import type { Test } from 'tap';
import { parseAllDocuments } from 'yaml';
import { gatewayProblems, startProblems } from '../../src/config/config-notes.js';
import { loadConfig } from '../../src/config/load.js';
import { NoteSigner } from '../../src/evidence/signed-note.js';
import { cluster, type Release } from './cluster.js';
import { manifestsIn, render } from './render.js';

const made = 'release-merchant-gateway-record-secret';
const mounted = '/etc/merchant-gateway/secrets/recordSecret/record-secret';

interface Manifest {
  readonly kind: string;
  readonly data?: Readonly<Record<string, string>>;
}

/** Starts a simulated cluster. Its function `valueOf` returns the value of the record secret, or undefined. */
async function clusterWithSecret(t: Test) {
  const started = await cluster(t);
  return { ...started, valueOf: () => started.secret(made)?.data?.['record-secret'] };
}

t.test('a new installation generates a record secret and keeps it on upgrades', async (t) => {
  const { helm, valueOf } = await clusterWithSecret(t);
  const installed = await helm('install');
  t.notMatch(installed.info.notes, 'records in Redis are not sealed');
  t.match(installed.manifest, mounted);
  const value = valueOf() ?? '';
  t.equal(Buffer.from(value, 'base64').length, 64);
  t.match((await helm('upgrade')).manifest, mounted);
  t.equal(valueOf(), value);
});

t.test('a new installation signs access logs, uses the registry as witness, and keeps its keys', async (t) => {
  const { helm, secret } = await clusterWithSecret(t);
  const { manifest, info } = await helm('install');
  const keyOf = (name: string): string =>
    Buffer.from(secret(`release-merchant-gateway-${name}`)?.data?.[`${name}.pem`] ?? '', 'base64').toString();
  const keys = ['instance-key', 'witness-key'].map(keyOf);
  const signers = keys.map((pem) => NoteSigner.ofPem('a', pem));
  t.notSame(signers[0]?.key.bytes, signers[1]?.key.bytes);
  t.match(info.notes, 'The registry stores and signs checkpoints of the access logs');
  const configs = (parseAllDocuments(manifest).map((document) => document.toJSON() as unknown) as Manifest[])
    .filter(({ kind }) => kind === 'ConfigMap')
    .flatMap(({ data = {} }) => Object.values(data))
    .filter((one) => one.includes('keyFile') && !one.includes('groups:'));
  const loaded = configs.map((text) => loadConfig({ text, env: {} }));
  const gateway = loaded.find(({ accessLog }) => accessLog.checkpoints !== null);
  t.match(gateway?.accessLog.checkpoints, {
    ...{ name: 'payments/release-merchant-gateway/live', file: null, witness: { required: false } },
    keyFile: '/etc/merchant-gateway/secrets/instanceKey/instance-key.pem',
  });
  t.same(gateway && gatewayProblems(gateway), []);
  const registry = loaded.find((config) => config.registry.witness !== null);
  t.match(registry?.registry.witness, {
    ...{ name: 'payments/release-merchant-gateway/registry' },
    keyFile: '/etc/merchant-gateway/secrets/witnessKey/witness-key.pem',
  });
  t.same(registry && startProblems('registry', registry), []);
  await helm('upgrade');
  t.same(['instance-key', 'witness-key'].map(keyOf), keys);
});

t.test('a generated Secret is immutable, and the runbook replaces it by another one', async (t) => {
  const { helm, secret, valueOf } = await clusterWithSecret(t);
  await helm('install');
  const value = valueOf();
  const page = readFileSync('docs/operations.md', 'utf8');
  for (const [option, name, heading] of [
    ['recordSecret', 'record-secret', 'The secret of records'],
    ['instanceKey', 'instance-key', 'The instance key'],
    ['witnessKey', 'witness-key', 'The key of receipts'],
  ] as const) {
    t.equal(secret(`release-merchant-gateway-${name}`)?.immutable, true, name);
    const section = page.split(/^##+ /m).find((one) => one.startsWith(`${heading}\n`)) ?? '';
    t.match(section, `secrets.${option}.existingSecret: ${name}-`, heading);
    t.match(section, `create secret generic ${name}-`, heading);
  }
  const { manifest } = await helm('upgrade', { existingSecret: 'record-secret-1' });
  t.match(manifest, 'secretName: record-secret-1');
  t.notMatch(manifest, `secretName: ${made}`);
  t.equal(valueOf(), value, 'the former one is kept');
});

t.test('an upgrade of a release without a record secret adds none', async (t) => {
  const { helm, valueOf } = await clusterWithSecret(t);
  t.match((await helm('install', { create: false })).info.notes, 'WARNING: records in Redis are not sealed');
  t.notMatch((await helm('upgrade')).manifest, mounted);
  t.equal(valueOf(), undefined);
  await helm('upgrade', { create: true });
  t.ok(valueOf(), 'unless it is requested');
});

t.test('the upgrade after an installation that failed early generates what the installation would have', async (t) => {
  const { attempt, helm, refuseNext, secret, valueOf } = await clusterWithSecret(t);
  refuseNext('poddisruptionbudgets');
  t.match((await attempt('install')).error, 'a policy forbids this object');
  t.equal(valueOf(), undefined, 'Helm creates Secrets later');
  const { info, manifest } = await helm('upgrade');
  t.match(manifest, mounted);
  t.notMatch(info.notes, 'records in Redis are not sealed');
  t.equal(Buffer.from(valueOf() ?? '', 'base64').length, 64);
  for (const key of ['instance-key', 'witness-key']) t.ok(secret(`release-merchant-gateway-${key}`), key);
});

t.test('secrets and certificate are generated also without a token of administrators in the cluster', async (t) => {
  const { helm, secret, valueOf } = await clusterWithSecret(t);
  const values = { config: { registry: { bootstrap: 'off' } }, secrets: { adminToken: { existingSecret: '' } } };
  t.match((await helm('install', {}, values)).manifest, mounted);
  t.ok(valueOf());
  t.ok(secret('release-merchant-gateway-registry-tls'));
});

t.test('an installation without a registry or with an existing secret generates none', async (t) => {
  const [alone, own] = [await clusterWithSecret(t), await clusterWithSecret(t)];
  await alone.helm('install', {}, { registry: { enabled: false } });
  t.equal(alone.valueOf(), undefined);
  t.match((await own.helm('install', { existingSecret: 'mine' })).manifest, mounted);
  t.equal(own.valueOf(), undefined);
});

t.test(
  'the certificate of the admin API is created by an upgrade too, and kept until half of its time is over',
  async (t) => {
    const { helm, secret } = await clusterWithSecret(t);
    const name = 'release-merchant-gateway-registry-tls';
    await helm('install', {}, { registry: { tls: { create: false } } });
    t.equal(secret(name), undefined);
    await helm('upgrade');
    const certificate = secret(name)?.data?.['tls.crt'] ?? '';
    t.match(Buffer.from(certificate, 'base64').toString(), /^-----BEGIN CERTIFICATE-----/);
    await helm('upgrade');
    t.equal(secret(name)?.data?.['tls.crt'], certificate, 'the next upgrade keeps it');
  },
);

t.test('rendering without a cluster generates no secret', (t) => {
  const rendered = render('live-tls');
  t.equal(rendered.status, 0);
  t.notOk(manifestsIn(rendered).some(({ kind }) => kind === 'Secret'));
  t.notMatch(rendered.stdout, mounted);
  t.end();
});

t.test('a database is created only for a new part, never by an upgrade', async (t) => {
  const { helm } = await clusterWithSecret(t);
  const startsOf = ({ manifest }: Release): string[] =>
    manifestsIn({ stdout: manifest }).flatMap(({ kind, ...rest }) => {
      const args = (rest as { spec?: { template?: { spec?: { containers?: { args?: string[] }[] } } } }).spec;
      const [container] = args?.template?.spec?.containers ?? [];
      return kind === 'Deployment' ? [container?.args?.filter((arg) => !arg.startsWith('/')).join(' ') ?? ''] : [];
    });
  const before = { registry: { enabled: true }, services: { enabled: false } };
  t.same(startsOf(await helm('install', {}, before)), ['gateway --config', 'registry --config --create']);
  t.same(startsOf(await helm('upgrade', {}, before)), ['gateway --config', 'registry --config']);
  const after = {
    ...before,
    services: { enabled: true },
    secrets: { identitySigningKey: { existingSecret: 'signing-key' } },
  };
  t.same(
    startsOf(await helm('upgrade', {}, after)),
    ['gateway --config', 'registry --config', 'services --config --create'],
    'a part added by an upgrade',
  );
  // Without `createDatabase`, a part whose first pod never started would get no database.
  const again = { ...before, registry: { enabled: true, createDatabase: true } };
  t.same(startsOf(await helm('upgrade', {}, again)), ['gateway --config', 'registry --config --create'], 'on request');
  const never = { ...before, registry: { enabled: true, createDatabase: false } };
  t.same(startsOf(await helm('upgrade', {}, never)), ['gateway --config', 'registry --config']);
});
