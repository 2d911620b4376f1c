import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import t, { type Test } from 'tap';
import { run } from '../../src/cli/run.js';
import { NoteSigner } from '../../src/evidence/signed-note.js';
import { signListHead } from '../../src/evidence/submission.js';
import { withoutRedis } from '../adapters/redis-server.js';
import { startRig, type Part, until } from '../alerts/rig.js';
import { linesOf } from '../audit/verify-log.js';

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
  const command = async (...args: string[]) => {
    let [out, err] = ['', ''];
    const status = await run([...args, ...access], { out: (text) => (out += text), err: (text) => (err += text) });
    return { status, out, err };
  };
  const ask = async (gateway: Part, times: number): Promise<void> => {
    for (let count = 0; count < times; count += 1) await rig.ask(gateway, { path: `/transactions?${count}` });
  };
  /** Waits until the registry has checkpoints of the given number of lines. */
  const witnessed = (lines: number): Promise<void> =>
    until(`${lines} lines are witnessed`, async () => {
      const { out } = await command('checkpoints', 'runs', '--json');
      const notes = (JSON.parse(out) as { note: string }[]).map(({ note }) => note.split('\n'));
      return notes.reduce((sum, [, size]) => sum + Number(size), 0) >= lines;
    });
  const end = async ({ child }: Part, signal: NodeJS.Signals): Promise<void> => {
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill(signal);
    await ended;
  };
  const kinds = async (): Promise<string[]> => {
    const { out } = await command('checkpoints', 'findings', '--json');
    return (JSON.parse(out) as { kind: string }[]).map(({ kind }) => kind).toSorted();
  };
  const verify = (...more: string[]) => command('audit', 'verify', '--checkpoints', 'registry', ...more, log);
  return { ...rig, ask, checkpoints, command, end, kinds, log, startGateway, verify, witnessed };
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
  t.match(verdict.out, /signed by gw\.example\/a at \S+Z, the \d lines 1 to \d received by the registry at \S+Z\n/);
  t.match(
    verdict.out,
    /note: no administrator has confirmed the key of gw\.example\/a: compare it with the output of "merchant-gateway audit public-key"/,
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
  // The file has smaller checkpoints, but without receipts.
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
    const { ask, checkpoints, end, kinds, log, startGateway, verify, witnessed } = await openDeployment(t);
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
    // First the process makes sure that the one before it, which may have left unanswered checkpoints, is gone.
    // A slow restart lets the registry miss the run first, which is another finding.
    await until('the cut log is reported at the next start', async () => (await kinds()).includes('cut'));
    t.same(
      (await kinds()).filter((kind) => kind !== 'silent'),
      ['cut'],
    );
    await end(second, 'SIGTERM');
    const verdict = await verify();
    t.equal(verdict.status, 1);
    t.match(verdict.out, /truncated: .* of the run \w{26} are missing, although signed at/);
  },
);

t.test(
  'a log that was deleted together with its checkpoint files is reported as missing',
  { skip: withoutRedis },
  async (t) => {
    const { ask, checkpoints, end, kinds, log, startGateway, verify, witnessed } = await openDeployment(t);
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
    t.match(verdict.out, /^registry:\d: missing: the 4 lines 1 to 4 of the run \w{26} are missing/m);
    await until('the silent run is reported', async () => (await kinds()).join() === 'silent', 30);
  },
);

t.test(
  'a gateway with another instance key gets no receipt until the key is pinned',
  { skip: withoutRedis },
  async (t) => {
    const { ask, checkpoints, command, end, kinds, startGateway } = await openDeployment(t);
    await end(await startGateway(), 'SIGTERM');
    renameSync(checkpoints.keyFile, `${checkpoints.keyFile}.former`);
    const other = await startGateway();
    await ask(other, 1);
    const ready = async (): Promise<{ status: number; text: string }> => {
      const response = await fetch(`http://127.0.0.1:${other.ports.management ?? 0}/readyz`);
      return { status: response.status, text: await response.text() };
    };
    t.match(await ready(), {
      status: 503,
      text: /the registry has not signed a receipt for a checkpoint of this process yet: 403: another key is pinned \(trusted\) for gw\.example\/a/,
    });
    t.same(await kinds(), ['key']);
    let key = '';
    await run(['audit', 'public-key', '--key-file', checkpoints.keyFile, '--name', checkpoints.name], {
      out: (text) => (key += text.trim()),
      err: () => undefined,
    });
    t.equal((await command('instance-keys', 'pin', key)).status, 0);
    await until('the gateway is ready', async () => (await ready()).status === 200);
    t.match((await command('instance-keys', 'end', key)).out, /is valid until/);
    await until('the gateway reports it', async () =>
      (await ready()).text.includes('403: the key of gw.example/a is not valid at this time'),
    );
  },
);
