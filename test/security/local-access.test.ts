import { spawn } from 'node:child_process';
import { chmodSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import t from 'tap';
import { sql } from '../../src/database/kysely.js';
import { openDatabase } from '../../src/database/open-database.js';
import { liveKey, recordsOf } from '../edge/harness.js';
import { killAtEnd, newInstallation, productCommand } from '../product-command.js';
import { until } from '../telemetry/open-log.js';

// Node opens its debugger on SIGUSR1 if there is no listener for that signal. Every user who may connect to 127.0.0.1
// can then run code in the process, and read the pepper, the private keys and the secret of the log. A log rotation
// that sends the wrong signal is enough.
const loopback = { host: '127.0.0.1', port: 0 };
const directory = t.testdir({ token: `${'t'.repeat(32)}\n`, 'records.json': JSON.stringify(recordsOf(liveKey)) });
writeFileSync(
  `${directory}/config.yaml`,
  JSON.stringify({
    listen: { https: null, http: loopback, management: null },
    trustedProxies: ['127.0.0.1'],
    torExits: { enabled: false },
    keyStore: {
      kind: 'memory',
      memory: { recordsFile: `${directory}/records.json` },
      redis: { url: 'redis://127.0.0.1:1' },
    },
    upstreams: { all: { url: 'http://127.0.0.1:9' } },
    routes: [{ path: '/transactions', upstream: 'all', resource: 'transactions' }],
    accessLog: { destination: `${directory}/access.log` },
    registry: {
      listen: loopback,
      database: { url: `sqlite:${directory}/registry.db` },
      tokenFile: `${directory}/token`,
    },
    services: { listen: loopback, database: { url: `sqlite:${directory}/services.db` } },
  }),
);

for (const args of [['gateway'], ['gateway', '--workers', '2'], ['registry'], ['services']]) {
  t.test(`SIGUSR1 opens no debugger in a process of ${args.join(' ')}`, async (t) => {
    const child = spawn(
      ...productCommand([...args, ...newInstallation(args[0] ?? ''), '--config', `${directory}/config.yaml`]),
      {
        stdio: ['ignore', 'ignore', 'pipe'],
      },
    );
    killAtEnd(t, child);
    let output = '';
    child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
    await until(() => /accepts? requests/.test(output) || child.exitCode !== null);
    const workers = [...output.matchAll(/"pid":(\d+),"msg":"worker process started"/g)].map(([, pid]) => Number(pid));
    t.equal(workers.length, args.at(-1) === '2' ? 2 : 0, output);
    for (const pid of [child.pid ?? 0, ...workers]) {
      const before = output.length;
      process.kill(pid, 'SIGUSR1');
      await until(() => /SIGUSR1|inspector|Debugger/.test(output.slice(before)) || child.exitCode !== null);
      t.match(output.slice(before), 'SIGUSR1 has no effect');
    }
    t.equal(child.exitCode, null);
    t.notMatch(output, /inspector|Debugger/);
  });
}

// Regression: every user of the machine could read customers, payouts and merchants.
t.test('a new SQLite database and its side files are readable by their owner only', async (t) => {
  const directory = t.testdir();
  const file = `${directory}/registry.db`;
  const modes = (): number[] => readdirSync(directory).map((name) => statSync(`${directory}/${name}`).mode & 0o777);
  const create = async (): Promise<number[]> => {
    const database = openDatabase({ url: `sqlite:${file}` });
    await sql`create table if not exists payouts (id text)`.execute(database);
    const all = modes();
    await database.destroy();
    return all;
  };
  const before = process.umask(0o022);
  t.teardown(() => process.umask(before));
  const created = await create();
  t.ok(created.length > 1, 'the database has side files');
  t.same(new Set(created), new Set([0o600]));
  chmodSync(file, 0o640);
  await create();
  t.equal(statSync(file).mode & 0o777, 0o640, 'the mode that an operator set is kept');
});
