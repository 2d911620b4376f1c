import { createPublicKey, generateKeyPairSync, type KeyObject } from 'node:crypto';
import { chmodSync, writeFileSync } from 'node:fs';
import t from 'tap';
import { readRegistryKeys, readServicesTokenKey } from '../../src/adapters/identity/signing-keys.js';

const ed25519 = generateKeyPairSync('ed25519').privateKey;
const p256 = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
const directory = t.testdir({});

function file(name: string, contents: string): string {
  const path = `${directory}/${name}`;
  writeFileSync(path, contents, { mode: 0o600 });
  return path;
}

const privatePem = (key: KeyObject) => key.export({ type: 'pkcs8', format: 'pem' }).toString();
const publicPem = (key: KeyObject) => createPublicKey(key).export({ type: 'spki', format: 'pem' }).toString();

t.test('the services know the key with which the registry signs by the same id', async (t) => {
  const signing = await readServicesTokenKey(file('key.pem', privatePem(ed25519)));
  const { keys } = await readRegistryKeys([file('registry.pub', publicPem(ed25519))]);
  t.match(keys, [{ kid: signing.keyId, alg: 'EdDSA', kty: 'OKP', use: 'sig' }]);
  t.notOk(JSON.stringify(keys).includes('"d"'), 'no private part');
});

t.test('the services reject a private key, another algorithm and what is no key', async (t) => {
  const message =
    /^The public key of services\.operators\.registryKeys \S+ must be an Ed25519 public key\. Derive it from the private key in registry\.servicesToken\.keyFile: openssl pkey /;
  for (const [name, contents] of [
    ['private', privatePem(ed25519)],
    ['both', `${publicPem(ed25519)}${privatePem(ed25519)}`],
    ['p256', publicPem(p256)],
    ['text', 'no key'],
    ['empty', ''],
  ] as const)
    await t.rejects(readRegistryKeys([file(name, contents)]), { message }, name);
  await t.rejects(readRegistryKeys([`${directory}/missing`]), { message: /there is no such file/ });
});

t.test('the registry rejects a key of another algorithm, a public key, and one that everybody can read', async (t) => {
  const other = file('other.pem', privatePem(p256));
  await t.rejects(readServicesTokenKey(other), {
    message: /must be an Ed25519 key\. Create one: openssl genpkey -algorithm ed25519/,
  });
  await t.rejects(readServicesTokenKey(file('public.pem', publicPem(ed25519))), {
    message: /must be an unencrypted private key in PEM format/,
  });
  const open = file('open.pem', privatePem(ed25519));
  chmodSync(open, 0o644);
  await t.rejects(readServicesTokenKey(open), { message: /is accessible to every user of this machine/ });
});
