import { generateKeyPairSync } from 'node:crypto';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import https from 'node:https';
import net from 'node:net';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import t from 'tap';
import { run as runCommand } from '../../src/cli/run.js';
import { createSelfSigned } from '../../src/cli/dev/self-signed.js';
import { ask, liveKey, recordsOf } from '../edge/harness.js';
import { killAtEnd, newInstallation, productCommand } from '../product-command.js';
import { curlLines, directory, freePorts, hasCurl, paste, startDev } from './dev-process.js';

const isRoot = process.getuid?.() === 0;

interface Result {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

async function run(...args: string[]): Promise<Result> {
  let [stdout, stderr] = ['', ''];
  const status = await runCommand(args, { out: (text) => (stdout += text), err: (text) => (stderr += text) });
  return { status, stdout, stderr };
}

t.test(
  'the printed curl commands work as pasted: 200, 201 and 401',
  { skip: !hasCurl && 'curl is not installed' },
  async (t) => {
    const dev = await startDev(t);
    const [list = '', payout = '', refusal = ''] = curlLines(dev.welcome);
    const listed = await paste(list);
    t.equal(listed.status, 200);
    t.match(JSON.parse(listed.body), { success: true, meta: { current_page: 1 } });
    const created = await paste(payout);
    t.equal(created.status, 201);
    t.match(JSON.parse(created.body), { success: true, data: { amount: 250_000, remarks: 'My first payout' } });
    const refused = await paste(refusal);
    t.equal(refused.status, 401);
    t.equal(refused.body, '{"success":false,"message":"API Key is required","data":null}');
    const again = JSON.parse((await paste(list)).body) as { data: { amount: number; type: string }[] };
    t.match(again.data[0], { amount: 250_000, type: 'debit' }, 'the list contains the payout');

    const fund = /^npx merchant-gateway (wallets fund .*)$/m.exec(dev.welcome)?.[1] ?? '';
    const funded = await run(...fund.split(' '));
    t.equal(funded.stderr.replace(/^The reference is .*\n/, ''), '');
    t.match(funded.stdout, /The balance of the wallet is \d+ NGN/, 'the command that funds the wallet works');
    const entries = /^npx merchant-gateway (wallets entries .*)$/m.exec(dev.welcome)?.[1] ?? '';
    t.match((await run(...entries.split(' '))).stdout, 'demo-treasurer', 'the ledger has the name of the treasurer');
    const key = /x-api-key: (svc_live_\w+)/.exec(list)?.[1] ?? '';
    t.match(key, /^svc_live_[0-9A-Za-z]{49}$/);
    const audits = dev.welcome.split('\n').filter((line) => line.startsWith('npx merchant-gateway audit '));
    const printed = audits.map((line) => {
      const command = line.replace('npx merchant-gateway', `${process.execPath} dist/cli/main.js`);
      return spawnSync('sh', ['-c', command], { encoding: 'utf8' });
    });
    t.match(
      printed,
      [{ status: 0 }, { status: 0, stdout: /^Intact: /m }],
      'the commands that verify the access log work',
    );
    const events = /^npx merchant-gateway (events list .*)$/m.exec(dev.welcome)?.[1] ?? '';
    const ofFunding = () => run(...events.split(' '), '--action', 'wallet.funded');
    while (!(await ofFunding()).stdout.includes('demo-treasurer'))
      await new Promise((resolve) => setTimeout(resolve, 1));
    const data = /data +(\S+)/.exec(dev.welcome)?.[1] ?? '';
    t.equal(await dev.end('SIGINT'), 0, 'SIGINT ends the process with status 0');
    await t.rejects(readdir(data), 'the temporary directory is removed');
  },
);

t.test('dev --json prints one line with everything that a script needs', async (t) => {
  const dev = await startDev(t, ['--json']);
  t.notMatch(dev.welcome, /"level":"(?:warn|error)"/, 'the demo starts without a warning');
  const lines = dev.welcome.split('\n').filter((line) => line.startsWith('{"baseUrl"'));
  const { baseUrl, key, certFile, ...rest } = JSON.parse(lines.join()) as Record<string, string>;
  t.match(rest, { kept: false, merchantId: /^m_/, walletId: /./, registryUrl: /^http:/, adminTokenFile: /./ });
  // The demo administrators: what each may do, and what it may not.
  const { merchantId, registryUrl, adminTokenFile } = rest as Record<string, string>;
  const asked = async (file: string, method: string, route: string): Promise<number> => {
    const token = await readFile(path.join(path.dirname(adminTokenFile ?? ''), file), 'utf8');
    const headers = { authorization: `Bearer ${token.trim()}` };
    return (await fetch(`${registryUrl}${route}`, { method, headers })).status;
  };
  const own = `/merchants/${merchantId}/keys`;
  for (const [file, method, route, status] of [
    ['owner-token', 'GET', '/administrators', 200],
    ['support-token', 'GET', own, 200],
    ['support-token', 'POST', own, 403],
    ['member-token', 'GET', own, 200],
    ['member-token', 'GET', '/merchants/m_00000000000000000000000000/keys', 404],
    ['treasurer-token', 'GET', '/merchants', 200],
    ['treasurer-token', 'GET', own, 403],
  ] as const)
    t.equal(await asked(file, method, route), status, `${file}: ${method} ${route}`);
  const agent = new https.Agent({ ca: await readFile(certFile ?? '') });
  const options = { agent, headers: { 'x-api-key': key } };
  const [response] = (await once(https.get(`${baseUrl ?? ''}/transactions`, options), 'response')) as [IncomingMessage];
  response.resume();
  agent.destroy();
  t.equal(response.statusCode, 200, 'the printed key is accepted');
  t.equal(await dev.end('SIGTERM'), 0);
});

t.test(
  '--data-dir preserves everything except the plain key',
  { skip: !hasCurl && 'curl is not installed' },
  async (t) => {
    const kept = path.join(directory, 'kept', 'deep');
    const first = await startDev(t, ['--data-dir', kept]);
    const [, payout = ''] = curlLines(first.welcome);
    const key = /x-api-key: (svc_live_\w+)/.exec(first.welcome)?.[1] ?? '';
    t.equal((await paste(payout)).status, 201);
    t.equal(await first.end('SIGTERM'), 0);

    for (const name of await readdir(kept)) {
      const contents = await readFile(path.join(kept, name), 'latin1');
      t.notMatch(contents, key.slice('svc_live_'.length, 'svc_live_'.length + 6), `the key is not in ${name}`);
    }

    const second = await startDev(t, ['--data-dir', kept]);
    t.notMatch(second.welcome, /svc_live_\w/, 'the key is not shown again');
    const [list = ''] = curlLines(second.welcome);
    const listed = await paste(list, { API_KEY: key });
    t.equal(listed.status, 200, 'the key is still accepted');
    t.match((JSON.parse(listed.body) as { data: unknown[] }).data[0], { amount: 250_000, type: 'debit' });
    await second.end('SIGINT');

    const third = await startDev(t, ['--data-dir', kept, '--reset-key']);
    const [newList = ''] = curlLines(third.welcome);
    t.equal((await paste(newList)).status, 200, 'a new key is accepted');
    t.equal(
      (await paste(list.replace(/https:\S+/, /https:\S+/.exec(newList)?.[0] ?? ''), { API_KEY: key })).status,
      401,
    );
    await third.end('SIGINT');

    const log = path.join(kept, 'access.log');
    const { stdout: publicKey } = await run('audit', 'public-key', '--key-file', path.join(kept, 'instance-key.pem'));
    const keys = path.join(directory, 'public-keys.txt');
    await writeFile(keys, publicKey);
    const checkpoints = ['--checkpoints', path.join(kept, 'checkpoints.jsonl'), '--public-key', keys];
    const verified = await run('audit', 'verify', ...checkpoints, log);
    t.match(
      verified,
      { status: 0, stdout: /^Intact: \d+ lines of \d+ requests, 3 chains, 0 findings/m },
      'the log is signed, and verified without a secret',
    );
    t.equal(
      verified.stdout.match(/^log run \S+: the \d+ lines 1 to \d+ signed by merchant-gateway at \S+Z$/gm)?.length,
      3,
    );
    for (const dev of [first, second, third]) t.notMatch(dev.output(), 'secretFile is not set');
  },
);

t.test('an operator error prints one sentence and sets the exit status', async (t) => {
  const taken = net.createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  t.teardown(() => taken.close());
  const { port } = taken.address() as AddressInfo;
  const write = async (name: string, text: string): Promise<string> => {
    await writeFile(path.join(directory, name), text);
    return path.join(directory, name);
  };
  const ports = await readFile(freePorts, 'utf8');
  const pair = await createSelfSigned(new Date());
  const otherPair = await createSelfSigned(new Date());
  const cert = await write('cert.pem.txt', pair.cert);
  const otherKey = await write('other-key.pem.txt', otherPair.key);
  const garbage = await write('garbage.txt', 'not a certificate');
  const aFile = await write('a-file', '');
  const https = (certFile: string, keyFile: string) =>
    ports.replace('https: { port: 0 }', `https: { port: 0, certFile: ${certFile}, keyFile: ${keyFile} }`);
  const listen = (name: string) => ports.replace(`${name}: { port: 0 }`, `${name}: { host: 127.0.0.1, port: ${port} }`);

  const cases: [string, string[], number, RegExp][] = [
    [
      'a port in use',
      ['--config', await write('1.yaml', listen('https'))],
      1,
      /^Cannot listen on 127\.0\.0\.1:\d+ \(listen\.https\): the port is in use/,
    ],
    [
      'a port in use, of the services',
      [
        '--config',
        await write(
          '2.yaml',
          ports.replace('services: { listen: { port: 0 } }', `services: { listen: { port: ${port} } }`),
        ),
      ],
      1,
      /^Cannot listen on 127\.0\.0\.1:\d+ \(services\.listen\): the port is in use/,
    ],
    [
      'an invalid certificate',
      ['--config', await write('3.yaml', https(garbage, otherKey))],
      1,
      /^The certificate \S+ is not a PEM certificate\.$/m,
    ],
    [
      'a missing certificate',
      ['--config', await write('4.yaml', https('/nowhere.pem', otherKey))],
      1,
      /^The certificate \/nowhere\.pem cannot be read: there is no such file\.$/m,
    ],
    [
      'a certificate of another key',
      ['--config', await write('5.yaml', https(cert, otherKey))],
      1,
      /do not belong together\.$/m,
    ],
    [
      'a data directory that is a file',
      ['--config', freePorts, '--data-dir', aFile],
      1,
      /^The data directory \S+ cannot be written: it is a file\. Choose another directory with --data-dir\.$/m,
    ],
    [
      'an invalid configuration',
      ['--config', await write('6.yaml', 'listen: 7\nbogus: 1\n')],
      2,
      /2 problems[^]*line 1: listen[^]*line 2: bogus/,
    ],
    ['a missing configuration', ['--config', '/nowhere.yaml'], 2, /nowhere\.yaml/],
  ];
  if (!isRoot) {
    const locked = path.join(directory, 'locked');
    await mkdir(locked);
    await chmod(locked, 0o500);
    cases.push(['an unwritable directory', ['--config', freePorts, '--data-dir', locked], 1, /permission denied/]);
  }
  const temporary = path.join(directory, 'temporary');
  await mkdir(temporary);
  const { TMPDIR } = process.env;
  process.env.TMPDIR = temporary;
  t.teardown(() => {
    if (TMPDIR === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = TMPDIR;
  });
  for (const [name, args, status, message] of cases) {
    const result = await run('dev', ...args);
    t.equal(result.status, status, name);
    t.match(result.stderr, message, name);
    t.notMatch(result.stderr, /\n {4}at /, `${name}: no stack trace`);
    t.equal(result.stdout, '', name);
  }
  t.same(await readdir(temporary), [], 'a failed start removes its temporary directory');
});

t.test('every command has help; a usage error exits with status 2', async (t) => {
  for (const args of [
    [],
    ['dev'],
    ['gateway'],
    ['registry'],
    ['services'],
    ['merchants', 'create'],
    ['keys', 'revoke'],
    ['config'],
    ['config', 'check'],
    ['config', 'defaults'],
  ]) {
    const help = await run(...args, '--help');
    t.equal(help.status, 0, args.join(' '));
    t.match(help.stdout, /^Usage: merchant-gateway/);
  }
  for (const args of [[], ['bogus'], ['dev', '--bogus'], ['dev', 'extra'], ['config'], ['gateway', '--config']]) {
    t.equal((await run(...args)).status, 2, args.join(' '));
  }
  const file = path.join(directory, 'nothing.yaml');
  await writeFile(file, 'torExits: { sources: [] }\n');
  t.match((await run('gateway')).stderr, /listen\.https/);
  const gateway = await run('gateway', '--config', file);
  t.equal(gateway.status, 2, 'a gateway does not start with the defaults only');
  t.match(gateway.stderr, /listen\.https[^]*torExits\.sources/, 'all missing options are reported together');
});

t.test('gateway and services run as separate processes from one configuration', async (t) => {
  const pair = await createSelfSigned(new Date());
  const file = (name: string) => path.join(directory, `apart-${name}`);
  await writeFile(file('cert.txt'), pair.cert);
  await writeFile(file('key.txt'), pair.key);
  await writeFile(
    file('signing-key.txt'),
    generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' }),
  );
  await writeFile(file('records.json'), JSON.stringify(recordsOf(liveKey)));
  await writeFile(
    file('config.yaml'),
    `listen:
  https: { host: 127.0.0.1, port: 0, certFile: ${file('cert.txt')}, keyFile: ${file('key.txt')} }
  http: null
  management: null
torExits: { enabled: false }
keyStore: { kind: memory, memory: { recordsFile: ${file('records.json')} } }
upstreams: { transactions: { url: "\${SERVICES_URL:-http://127.0.0.1:7080}" } }
routes: [{ path: /transactions, upstream: transactions, resource: transactions }]
identity: { signingKeyFile: ${file('signing-key.txt')} }
accessLog: { destination: ${file('access.log')} }
services: { listen: { port: 0 }, database: { url: "sqlite:${file('services.db')}" } }
`,
  );
  const start = async (command: string, env: Record<string, string>) => {
    const child = spawn(...productCommand([command, '--config', file('config.yaml'), ...newInstallation(command)]), {
      stdio: 'pipe',
      env: { ...process.env, ...env },
    });
    killAtEnd(t, child);
    const exited = once(child, 'exit');
    let log = '';
    await new Promise<void>((resolve, reject) => {
      void exited.then(() => {
        reject(new Error(`${command} ended: ${log}`));
      });
      child.stderr.on('data', (chunk: Buffer) => {
        log += chunk.toString();
        if (/accepts? requests"/.test(log)) resolve();
      });
    });
    return { command, child, exited, log };
  };
  const services = await start('services', {});
  const servicesUrl = /"url":"([^"]+)"/.exec(services.log)?.[1] ?? '';
  const gateway = await start('gateway', { SERVICES_URL: servicesUrl });
  const port = Number(/"https":\{[^}]*"port":(\d+)/.exec(gateway.log)?.[1]);

  const response = await ask({ https: port, ca: pair.cert }, { headers: [['x-api-key', liveKey]] });
  t.match(response, { status: 200, body: /"success":true/ }, "the services accept the gateway's assertion");
  const direct = await fetch(`${servicesUrl}/transactions`, {
    headers: { 'x-merchant-id': 'm_1', 'x-merchant-environment': 'live' },
  });
  t.equal(direct.status, 403, 'other clients are rejected, including local ones');

  for (const { command, child, exited } of [gateway, services]) {
    child.kill('SIGTERM');
    const [status] = (await exited) as [number | null];
    t.equal(status, 0, `${command} exits with status 0`);
  }
});

t.test('npm start ends as a whole even if signalled twice, and leaves no process and no files', async (t) => {
  const temporary = path.join(directory, 'started-by-npm');
  await mkdir(temporary);
  // Without the build, which would replace files that concurrent tests are using.
  const group = spawn('npm', ['start', '--ignore-scripts', '--', '--config', freePorts], {
    detached: true,
    env: { ...process.env, TMPDIR: temporary },
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const { pid = 0 } = group;
  t.teardown(() => {
    try {
      process.kill(-pid, 'SIGKILL');
    } catch {
      // The group has ended already.
    }
  });
  await new Promise<void>((resolve) => {
    let output = '';
    group.stdout.on('data', (chunk: Buffer) => {
      output += chunk.toString();
      if (/Send a request without a key[^]*curl .*\n/.test(output)) resolve();
    });
  });
  // Like a terminal: each process of the group gets the signal, and npm forwards it a second time.
  process.kill(-pid, 'SIGINT');
  await once(group, 'exit');
  const left = (await readdir(temporary)).filter((name) => name !== 'node-compile-cache'); // created by npm
  t.same(left, []);
  t.throws(() => process.kill(-pid, 0), { code: 'ESRCH' }, 'no process of the group is running');
});

t.test('a signal during the start leaves no files', async (t) => {
  const temporary = path.join(directory, 'interrupted');
  await mkdir(temporary);
  const child = spawn(...productCommand(['dev', '--config', freePorts]), {
    env: { ...process.env, TMPDIR: temporary },
    stdio: 'ignore',
  });
  const exited = once(child, 'exit');
  while (
    (await readdir(temporary)).length === 0 ||
    (await readdir(path.join(temporary, (await readdir(temporary))[0] ?? ''))).length === 0
  ) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  child.kill('SIGTERM');
  await exited;
  t.same(await readdir(temporary), []);
});
