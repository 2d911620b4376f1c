import { execFileSync } from 'node:child_process';
import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import t, { type Test } from 'tap';
import { run } from '../../src/cli/run.js';
import { NoteSigner } from '../../src/evidence/signed-note.js';
import { signListHead } from '../../src/evidence/submission.js';
import { withoutRedis } from '../adapters/redis-server.js';
import { startRig, type Part, until } from '../alerts/rig.js';
import { linesOf } from '../audit/verify-log.js';
import { ran } from '../cli/ran.js';

// These tests run in parallel: they mostly wait, each for its own servers.
t.jobs = 3;

/** The timeout of a wait, and the pause between its checks, if each check runs a command. */
const [mostSeconds, pauseMilliseconds] = [60, 250];

/** A gateway and the registry that witnesses its access log, as processes on one Redis. */
async function openDeployment(t: Test) {
  const rig = await startRig(t);
  const { folder } = rig;
  const registry = await rig.start('registry', {
    registry: { witness: { name: 'control.example', keyFile: path.join(folder, 'witness.pem') } },
  });
  const log = path.join(folder, 'access.log');
  const checkpoints = {
    ...{
      name: 'gw.example/a',
      keyFile: path.join(folder, 'instance.pem'),
      file: path.join(folder, 'checkpoints.jsonl'),
    },
    ...{ everySeconds: 1, witness: { required: true } },
  };
  const startGateway = (): Promise<Part> => rig.start('gateway', { accessLog: { destination: log, checkpoints } });
  const access = [
    '--registry',
    `http://127.0.0.1:${registry.ports.api ?? 0}`,
    '--token-file',
    path.join(folder, 'token.txt'),
  ];
  const command = (...args: string[]) => ran(...args, ...access);
  const ask = async (gateway: Part, times: number): Promise<void> => {
    for (let count = 0; count < times; count += 1) await rig.ask(gateway, { path: `/transactions?${count}` });
  };
  /** Waits until the checkpoints at the registry cover at least `lines` lines. */
  const witnessed = (lines: number): Promise<void> => {
    const isWitnessed = async (): Promise<boolean> => {
      const { out } = await command('checkpoints', 'runs', '--json');
      const notes = (JSON.parse(out) as { note: string }[]).map(({ note }) => note.split('\n'));
      return notes.reduce((sum, [, size]) => sum + Number(size), 0) >= lines;
    };
    return until(`${lines} lines are witnessed`, isWitnessed, mostSeconds, pauseMilliseconds);
  };
  const end = async ({ child }: Part, signal: NodeJS.Signals): Promise<void> => {
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill(signal);
    await ended;
  };
  const kinds = async (): Promise<string[]> => {
    const { out } = await command('checkpoints', 'findings', '--json');
    return (JSON.parse(out) as { kind: string }[]).map(({ kind }) => kind).toSorted();
  };
  /** Waits until `isSo` accepts the kinds of the findings. */
  const found = (what: string, isSo: (kinds: readonly string[]) => boolean): Promise<void> =>
    until(what, async () => isSo(await kinds()), mostSeconds, pauseMilliseconds);
  const verify = (...more: string[]) => command('audit', 'verify', '--checkpoints', 'registry', ...more, log);
  return { ...rig, ask, checkpoints, command, end, found, kinds, log, startGateway, verify, witnessed };
}

t.test('an access log is verified against the checkpoints at the registry', { skip: withoutRedis }, async (t) => {
  const { ask, checkpoints, command, end, folder, kinds, log, startGateway, verify, witnessed } =
    await openDeployment(t);
  const gateway = await startGateway();
  await ask(gateway, 3);
  await witnessed(4);
  await ask(gateway, 2);
  await end(gateway, 'SIGTERM');
  const verdict = await verify();
  t.equal(verdict.status, 0, verdict.out + verdict.err);
  t.match(
    verdict.out,
    /signed by gw\.example\/a at \S+Z, the \d lines 1 to \d covered by a receipt of the registry, dated \S+Z\n/,
  );
  t.match(
    verdict.out,
    /note: no administrator has confirmed the key of gw\.example\/a\. Compare it with the output of "merchant-gateway audit public-key"/,
  );
  t.same(await kinds(), []);

  const [key] = JSON.parse((await command('instance-keys', 'list', '--json')).out) as { publicKey: string }[];
  const own = await run(
    ['audit', 'public-key', '--key-file', path.join(folder, 'instance.pem'), '--name', 'gw.example/a'],
    {
      out: (text) => t.equal(text, `${key?.publicKey ?? ''}\n`),
      err: () => undefined,
    },
  );
  t.equal(own, 0);
  t.match(await command('instance-keys', 'confirm', key?.publicKey ?? ''), { status: 0, out: /is confirmed/ });
  t.notMatch((await verify()).out, 'not confirmed');
  t.match((await command('instance-keys', 'list')).out, /gw\.example\/a .* by /);
  t.match((await command('events', 'list')).out, /instance-key\.confirmed[\s\S]*instance-key\.pinned/);

  const head = path.join(folder, 'head.json');
  writeFileSync(head, (await command('checkpoints', 'head', '--json')).out);
  t.equal((await verify('--head', head)).status, 0, 'the list begins with what the head covers');
  const longer = { size: 1_000, root: Buffer.alloc(32) };
  const witness = NoteSigner.ofPem('control.example', readFileSync(path.join(folder, 'witness.pem'), 'utf8'));
  writeFileSync(head, signListHead(longer, witness));
  t.match(await verify('--head', head), { status: 1, out: `${head}:1: rewritten: the registry signed a list of 1000` });
  writeFileSync(head, signListHead(longer, NoteSigner.inMemory('control.example')));
  t.match(await verify('--head', head), { status: 1, err: `${head} is not signed with a known key of the registry` });
  t.match(await verify('--as-of', '1h'), { status: 2, err: '--as-of needs --running' });
  t.match(await command('audit', 'verify', '--head', head, log), {
    status: 2,
    err: '--head requires --checkpoints registry',
  });

  const id = (JSON.parse(linesOf(readFileSync(log))[2] ?? '') as { event: { id: string } }).event.id;
  const proof = await command('audit', 'prove', '--id', id, '--checkpoints', 'registry', log);
  t.equal(proof.status, 0, proof.err);
  const files = {
    proof: path.join(folder, 'proof'),
    keys: path.join(folder, 'keys'),
    witness: path.join(folder, 'witness-key'),
  };
  writeFileSync(files.proof, proof.out);
  writeFileSync(files.keys, `${key?.publicKey ?? ''}\n`);
  writeFileSync(files.witness, (await command('checkpoints', 'head')).out);
  const check = async (file: string) => {
    let out = '';
    const args = ['audit', 'check-proof', '--public-key', files.keys, '--witness-key', files.witness, file];
    const status = await run(args, { out: (text) => (out += text), err: (text) => (out += text) });
    return { status, out };
  };
  t.match(await check(files.proof), {
    status: 0,
    out: / gw\.example\/a signed the first \d+ lines of the run at \S+Z, and the registry received the checkpoint at \S+Z\.\n$/,
  });
  // The gateway's own file has checkpoints of fewer lines, but without receipts of the registry. The proof must use a
  // checkpoint with a receipt.
  const sources = ['--checkpoints', 'registry', '--checkpoints', checkpoints.file];
  writeFileSync(files.proof, (await command('audit', 'prove', '--id', id, ...sources, log)).out);
  t.match(await check(files.proof), { status: 0, out: /, and the registry received the checkpoint at \S+Z\.\n$/ });
  writeFileSync(files.proof, proof.out.replace(/— control\.example .*\n/, ''));
  t.match(await check(files.proof), {
    status: 1,
    out: /the checkpoint has no receipt that a key in --witness-key verifies/,
  });
});

t.test(
  'a truncated log is detected although its checkpoint file was truncated too',
  { skip: withoutRedis },
  async (t) => {
    const { ask, checkpoints, end, found, kinds, log, startGateway, verify, witnessed } = await openDeployment(t);
    const first = await startGateway();
    await ask(first, 9);
    await witnessed(10);
    await end(first, 'SIGKILL');
    const lines = linesOf(readFileSync(log));
    writeFileSync(
      log,
      lines
        .slice(0, 6)
        .map((line) => `${line}\n`)
        .join(''),
    );
    rmSync(checkpoints.file);
    const second = await startGateway();
    // The new process first waits until its predecessor has ended, because the predecessor may have left checkpoints
    // without a receipt. If the restart is slow, the registry first reports the log of the predecessor as silent, which
    // is another finding.
    await found('the cut log is reported at the next start', (kinds) => kinds.includes('cut'));
    t.same(
      (await kinds()).filter((kind) => kind !== 'silent'),
      ['cut'],
    );
    await end(second, 'SIGTERM');
    const verdict = await verify();
    t.equal(verdict.status, 1);
    t.match(
      verdict.out,
      /truncated: .* of the log run \w{26} are missing, but the gateway signed this part of the log at/,
    );
  },
);

t.test(
  'a log that was deleted together with its checkpoint files is reported as missing',
  { skip: withoutRedis },
  async (t) => {
    const { ask, checkpoints, end, found, log, startGateway, verify, witnessed } = await openDeployment(t);
    const first = await startGateway();
    await ask(first, 3);
    await witnessed(4);
    await end(first, 'SIGKILL');
    rmSync(log);
    rmSync(checkpoints.file);
    const second = await startGateway();
    await end(second, 'SIGTERM');
    const verdict = await verify();
    t.equal(verdict.status, 1);
    t.match(verdict.out, /^registry:\d: missing: the 4 lines 1 to 4 of the log run \w{26} are missing/m);
    await found('the silent run is reported', (kinds) => kinds.join() === 'silent');
  },
);

t.test(
  'a gateway with another instance key gets no receipt until the key is pinned',
  { skip: withoutRedis },
  async (t) => {
    const { ask, checkpoints, command, end, found, kinds, startGateway } = await openDeployment(t);
    await end(await startGateway(), 'SIGTERM');
    renameSync(checkpoints.keyFile, `${checkpoints.keyFile}.former`);
    const other = await startGateway();
    await ask(other, 1);
    const ready = async (): Promise<{ status: number; text: string }> => {
      const response = await fetch(`http://127.0.0.1:${other.ports.management ?? 0}/readyz`);
      return { status: response.status, text: await response.text() };
    };
    await until('the registry has refused the key', async () => (await ready()).text.includes('(403: '));
    t.match(await ready(), {
      status: 503,
      text: /the registry has not signed a receipt for a checkpoint of this process yet \(403: another key is pinned \(trusted\) for gw\.example\/a/,
    });
    await found('the refused key is reported', (kinds) => kinds.length > 0);
    t.same(await kinds(), ['key']);
    let key = '';
    await run(['audit', 'public-key', '--key-file', checkpoints.keyFile, '--name', checkpoints.name], {
      out: (text) => (key += text.trim()),
      err: () => undefined,
    });
    t.equal((await command('instance-keys', 'pin', key)).status, 0);
    await until('the gateway is ready', async () => (await ready()).status === 200);
    t.match((await command('instance-keys', 'end', key)).out, /is not valid after/);
    await until('the gateway reports it', async () =>
      (await ready()).text.includes('403: the key of gw.example/a is not valid at this time'),
    );
  },
);

t.test('an instance key that is replaced as documented keeps getting receipts', { skip: withoutRedis }, async (t) => {
  const { ask, checkpoints, command, end, folder, kinds, startGateway, verify } = await openDeployment(t);
  const publicKeyIn = async (file: string): Promise<string> => {
    let key = '';
    const io = { out: (text: string) => (key += text.trim()), err: () => undefined };
    await run(['audit', 'public-key', '--key-file', file, '--name', checkpoints.name], io);
    return key;
  };
  const former = await startGateway();
  await ask(former, 1);
  const newKey = path.join(folder, 'new-key.pem');
  execFileSync('sh', ['-c', 'umask 077 && openssl genpkey -algorithm ed25519 -out "$0"', newKey]);
  const [oldPublicKey, newPublicKey] = [await publicKeyIn(checkpoints.keyFile), await publicKeyIn(newKey)];
  t.equal((await command('instance-keys', 'pin', newPublicKey)).status, 0);
  renameSync(newKey, checkpoints.keyFile);
  await end(former, 'SIGTERM');
  const restarted = await startGateway();
  await until('the registry signs a receipt with the new key', async () => {
    const response = await fetch(`http://127.0.0.1:${restarted.ports.management ?? 0}/readyz`);
    return response.status === 200;
  });
  t.equal((await command('instance-keys', 'end', oldPublicKey)).status, 0);
  await ask(restarted, 1);
  await end(restarted, 'SIGTERM');
  t.same(await kinds(), []);
  const verdict = await verify();
  t.equal(verdict.status, 0, verdict.out + verdict.err);
});
