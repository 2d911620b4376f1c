import { chmodSync, readdirSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import type { AddressInfo } from 'node:net';
import { once } from 'node:events';
import path from 'node:path';
import t from 'tap';
import { run } from '../../src/cli/run.js';
import { keyText, NoteSigner } from '../../src/evidence/signed-note.js';
import { startRedis, withoutRedis } from '../adapters/redis-server.js';
import { makeCertificate } from '../edge/certificates.js';

async function resultOf(...args: readonly string[]): Promise<readonly [status: number, err: string]> {
  let err = '';
  const status = await run(args, { out: () => undefined, err: (text) => (err += text), isTerminal: false });
  return [status, err];
}

t.test(
  'config check --connect opens every resource that a part needs, and changes nothing',
  { skip: withoutRedis },
  async (t) => {
    const redis = await startRedis(t);
    const service = net.createServer();
    await once(service.listen(0, '127.0.0.1'), 'listening');
    t.teardown(() => service.close());
    const { port } = service.address() as AddressInfo;
    const certificate = await makeCertificate();
    const expired = await makeCertificate({ notBefore: Date.now() - 9e9, notAfter: Date.now() - 1e6 });
    const secret = 'a-secret-of-the-test-0123456789-0123456789';
    const directory = t.testdir({
      ...{ cert: certificate.cert, key: certificate.key, 'old-cert': expired.cert, 'old-key': expired.key },
      ...{ token: secret, open: secret, blanks: secret.replaceAll('-', ' '), 'exits.txt': '198.51.100.7\n' },
    });
    chmodSync(path.join(directory, 'open'), 0o644);
    const file = path.join(directory, 'gateway.yaml');
    const check = (part: string) => resultOf('config', 'check', '--config', file, '--for', part, '--connect');
    const good = {
      listen: { https: { host: '127.0.0.1', port: 0, certFile: 'cert', keyFile: 'key' }, http: null, management: null },
      keyStore: { redis: { url: redis.url, replicas: 0 } },
      keys: { pepperFile: 'token', recordSecretFile: 'token' },
      torExits: { sources: ['exits.txt'], allowReserved: true, snapshotFile: 'tor-exits.json' },
      upstreams: { all: { url: `http://127.0.0.1:${port}` } },
      routes: [{ path: '/transactions', upstream: 'all', resource: 'transactions' }],
      accessLog: { destination: 'log/access.log', secretFile: 'token' },
      registry: { listen: { port: 0 }, tokenFile: 'token', database: { url: 'sqlite:registry.db' } },
      services: { listen: { port: 0 }, database: { url: 'sqlite:services.db' } },
    };
    writeFileSync(file, JSON.stringify(good));
    const before = readdirSync(directory);
    t.match(await check('gateway'), [
      0,
      /\nThe check found no errors in the files and connections of the gateway\.\n$/,
    ]);
    for (const part of ['registry', 'services']) {
      const [status, err] = await check(part);
      t.equal(status, 1);
      t.match(err, new RegExp(`The ${part} would not work:\n {2}${part}\\.database\\.url: There is no database`));
    }
    t.same(readdirSync(directory), before, 'no file was created');
    for (const part of ['registry', 'services']) {
      t.same(await resultOf('database', 'migrate', part, '--create', '--config', file), [0, '']);
      t.match(await check(part), [
        0,
        new RegExp(`The check found no errors in the files and connections of the ${part}`),
      ]);
    }
    const inRegistry = (options: object): object => ({ registry: { ...good.registry, ...options } });
    const withProvider = (clientSecretFile: string): object =>
      inRegistry({ oidc: { issuer: 'https://login.example.com', clientId: 'gateway', clientSecretFile } });
    const withConsole = (listen: object): object => inRegistry({ console: { listen: { port: 0, ...listen } } });
    const withTraces = (files: object): object => ({ traces: { endpoint: `https://127.0.0.1:${port}`, ...files } });
    const withWitness = (publicKey: string): object => ({
      accessLog: { ...good.accessLog, checkpoints: { keyFile: 'instance.pem', witness: { publicKey } } },
    });
    const publicKey = keyText(NoteSigner.inMemory('control.example').receiptKey);
    const defects: readonly (readonly [part: string, option: string, good: object, bad: object])[] = [
      ['registry', 'registry.oidc.clientSecretFile', withProvider('token'), withProvider('open')],
      [
        ...(['registry', 'registry.console.listen'] as const),
        withConsole({ certFile: 'cert', keyFile: 'key' }),
        withConsole({ certFile: 'old-cert', keyFile: 'old-key' }),
      ],
      ['gateway', 'traces.caFile', withTraces({ caFile: 'cert' }), withTraces({ caFile: 'nowhere' })],
      ['gateway', 'traces.tokenFile', withTraces({ tokenFile: 'token' }), withTraces({ tokenFile: 'blanks' })],
      [
        ...(['gateway', 'accessLog.checkpoints.witness.publicKey'] as const),
        withWitness(publicKey),
        withWitness(publicKey.replace(/\+[0-9a-f]{8}\+/, '+00000000+')),
      ],
    ];
    for (const [part, option, usable, unusable] of defects) {
      writeFileSync(file, JSON.stringify({ ...good, ...usable }));
      t.match(
        await check(part),
        [0, new RegExp(`The check found no errors in the files and connections of the ${part}`)],
        option,
      );
      writeFileSync(file, JSON.stringify({ ...good, ...unusable }));
      t.match(await check(part), [1, new RegExp(`The ${part} would not work:\n {2}${option}: `)]);
    }
    writeFileSync(file, JSON.stringify({ ...good, ...withConsole({ port }) }));
    t.match(await check('registry'), [
      0,
      / {2}registry\.console\.listen: cannot listen on 127\.0\.0\.1:\d+, because the port is in use/,
    ]);
    const elsewhere = { ...good.listen, https: { ...good.listen.https, host: '203.0.113.1' } };
    writeFileSync(file, JSON.stringify({ ...good, listen: elsewhere }));
    t.match(await check('gateway'), [
      0,
      / {2}listen\.https: cannot listen on 203\.0\.113\.1:0, because this machine does not have that address; choose one of its addresses, or 0\.0\.0\.0 for all addresses\n/,
    ]);
    const bad = {
      ...good,
      listen: { ...good.listen, https: { ...good.listen.https, port, certFile: 'old-cert', keyFile: 'old-key' } },
      keyStore: { redis: { url: redis.url.replace('redis:', 'rediss:') } },
      keys: { pepperFile: 'open', recordSecretFile: 'nowhere' },
      torExits: { sources: ['nowhere.txt'] },
      upstreams: { all: { url: 'http://127.0.0.1:1' } },
      accessLog: { destination: 'token/access.log' },
    };
    writeFileSync(file, JSON.stringify(bad));
    const [status, err] = await check('gateway');
    t.equal(status, 1);
    for (const expected of [
      /Warning:\n(?:.*\n)* {2}upstreams\.all\.url: 127\.0\.0\.1:1 cannot be reached \(ECONNREFUSED\)/,
      / {2}listen\.https: cannot listen on 127\.0\.0\.1:\d+, because the port is in use; stop the process that uses it or choose another port\. If the process is the server that you check, ignore this warning/,
      /The gateway would not work:\n/,
      / {2}keyStore\.redis\.url: Redis at \S+ does not use TLS, but TLS is configured/,
      / {2}listen\.https: the certificate \S+\/old-cert expired on \d{4}-\S+; replace it/,
      / {2}keys\.pepperFile: The pepper \S+\/open is accessible to every user of this machine \(mode 0644\)/,
      / {2}keys\.recordSecretFile: The secret of records \S+\/nowhere cannot be read: there is no such file/,
      / {2}torExits\.sources\[0\]: The Tor exit list \S+\/nowhere\.txt cannot be read: there is no such file/,
      / {2}accessLog\.destination: \S+\/token\/access\.log cannot be created, because \S+\/token is a file; configure a file/,
    ])
      t.match(err, expected);
  },
);
