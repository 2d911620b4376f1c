import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import t, { type Test } from 'tap';
import { run as runCommand } from '../../src/cli/run.js';
import { ServerTls } from '../../src/tls/server-tls.js';
import { type CertificateSetup, makeCertificate } from '../edge/certificates.js';
import { registryFixture, token } from '../registry/registry-fixture.js';

const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-admin-tls-'));
t.teardown(() => rm(directory, { recursive: true, force: true }));
let files = 0;

async function write(text: string): Promise<string> {
  const file = path.join(directory, `${(files += 1)}`);
  await writeFile(file, text, { mode: 0o600 });
  return file;
}

const tokenFile = await write(`${token}\n`);
const ca = await makeCertificate({ names: ['a private CA'] });
const caFile = await write(ca.cert);
for (const name of ['REGISTRY', 'TOKEN', 'CA_FILE']) Reflect.deleteProperty(process.env, `MERCHANT_GATEWAY_${name}`);

/** A registry with a certificate of the private CA. `list` lists its merchants. */
async function startRegistry(t: Test, setup: CertificateSetup = {}) {
  const { cert, key } = await makeCertificate({ ca, ...setup });
  const [certFile, keyFile] = [await write(cert), await write(key)];
  const clock = { now: () => Date.now() };
  const tls = await ServerTls.open({ certFile, keyFile, clientCaFile: null }, 'registry.listen', clock);
  const { app } = await registryFixture(t, 'sqlite::memory:', { access: { tls, hosts: [], behindProxy: null } });
  const { port } = new URL(await app.listen({ host: '127.0.0.1', port: 0 }));
  const list = async (...args: string[]): Promise<string> => {
    let output = '';
    const add = (text: string) => (output += text);
    await runCommand(['merchants', 'list', ...args], { out: add, err: add });
    t.notOk(output.includes(token), 'the output does not contain the token');
    return output;
  };
  const at = (...args: string[]) => list('--registry', `https://localhost:${port}`, '--token-file', tokenFile, ...args);
  return { list, at, port, certFile, keyFile };
}

t.test('--ca-file or the environment names the CA of the admin API', async (t) => {
  const { at } = await startRegistry(t);
  t.equal(await at('--ca-file', caFile), 'No merchants.\n');
  process.env.MERCHANT_GATEWAY_CA_FILE = caFile;
  t.equal(await at(), 'No merchants.\n');
  delete process.env.MERCHANT_GATEWAY_CA_FILE;
  t.match(await at(), /its certificate is not trusted \(\w+\)\. Give the file of its CA with --ca-file or /);
  const other = await write((await makeCertificate({ names: ['another CA'] })).cert);
  t.match(await at('--ca-file', other), /its certificate is not trusted/, 'only the CAs of the file count');
});

t.test('with --config, the certificate of the configured listener is trusted, whatever its names', async (t) => {
  const { list, port, certFile, keyFile } = await startRegistry(t, { names: ['registry.example'] });
  const configOf = (cert: string, key: string): Promise<string> =>
    write(
      JSON.stringify({
        registry: { listen: { host: '0.0.0.0', port: Number(port), certFile: cert, keyFile: key }, tokenFile },
      }),
    );
  t.equal(await list('--config', await configOf(certFile, keyFile)), 'No merchants.\n');
  const other = await makeCertificate({ ca, names: ['registry.example'] });
  const wrong = await configOf(await write(other.cert), await write(other.key));
  t.match(
    await list('--config', wrong),
    /its certificate is (?:not trusted|for other host names)/,
    'another certificate',
  );
});

t.test('a certificate that cannot be accepted is explained with the next step', async (t) => {
  const day = 86_400_000;
  const ended = await startRegistry(t, { notBefore: Date.now() - 9 * day, notAfter: Date.now() - day });
  t.match(
    await ended.at('--ca-file', caFile),
    /its certificate has expired\. Renew the certificate of the registry\.\n/,
  );
  const early = await startRegistry(t, { notBefore: Date.now() + day });
  t.match(await early.at('--ca-file', caFile), /its certificate is not valid yet\. Check the clocks/);
  const named = await startRegistry(t, { names: ['registry.example'] });
  t.match(
    await named.at('--ca-file', caFile),
    /its certificate is for other host names\. With --registry, give an address whose host name/,
  );
  const { at, list, port } = await startRegistry(t);
  t.match(await at('--ca-file', tokenFile), `The CA certificate ${tokenFile} is not a PEM certificate.\n`);
  t.match(await at('--ca-file', path.join(directory, 'missing')), /The CA certificate .*missing/);
  const plain = ['--registry', `http://localhost:${port}`, '--token-file', tokenFile];
  t.match(await list(...plain), /if it serves TLS, the address must begin with https:\/\/\. /);
  t.match(await list(...plain, '--ca-file', caFile), /--ca-file has no effect for an http:\/\/ address/);
});
