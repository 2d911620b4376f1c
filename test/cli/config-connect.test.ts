import { chmodSync, readdirSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import type { AddressInfo } from 'node:net';
import { once } from 'node:events';
import path from 'node:path';
import t from 'tap';
import { run } from '../../src/cli/run.js';
import { startRedis, withoutRedis } from '../adapters/redis-server.js';
import { makeCertificate } from '../edge/certificates.js';

async function said(...args: readonly string[]): Promise<readonly [status: number, err: string]> {
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
      ...{ token: secret, open: secret, 'exits.txt': '198.51.100.7\n' },
    });
    chmodSync(path.join(directory, 'open'), 0o644);
    const file = path.join(directory, 'gateway.yaml');
    const check = (part: string) => said('config', 'check', '--config', file, '--for', part, '--connect');
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
    t.match(await check('gateway'), [0, /\nAll files and connections of the gateway are usable\.\n$/]);
    for (const part of ['registry', 'services']) {
      const [status, err] = await check(part);
      t.equal(status, 1);
      t.match(err, new RegExp(`The ${part} would not work:\n {2}${part}\\.database\\.url: There is no database`));
    }
    t.same(readdirSync(directory), before, 'no file was created');
    for (const part of ['registry', 'services']) {
      t.same(await said('database', 'migrate', part, '--create', '--config', file), [0, '']);
      t.match(await check(part), [0, new RegExp(`All files and connections of the ${part} are usable`)]);
    }
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
      / {2}listen\.https: cannot listen on 127\.0\.0\.1:\d+ \(EADDRINUSE\): free the port or choose another one, unless the checked server is already running/,
      /The gateway would not work:\n/,
      / {2}keyStore\.redis\.url: Redis at \S+ does not use TLS, but TLS is configured/,
      / {2}listen\.https: the certificate \S+\/old-cert expired on \d{4}-\S+: renew it/,
      / {2}keys\.pepperFile: The pepper \S+\/open is accessible to every user of this machine \(mode 0644\)/,
      / {2}keys\.recordSecretFile: The secret of records \S+\/nowhere cannot be read: there is no such file/,
      / {2}torExits\.sources\[0\]: The Tor exit list \S+\/nowhere\.txt cannot be read: there is no such file/,
      / {2}accessLog\.destination: \S+\/token\/access\.log cannot be created, because \S+\/token is a file: configure a file/,
    ])
      t.match(err, expected);
  },
);
