import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import t from 'tap';
import { run } from '../../src/cli/run.js';
import { openCheckpoints, readInstanceKey } from '../../src/cli/compose/checkpoints.js';
import { loadConfig } from '../../src/config/load.js';
import { keyText } from '../../src/evidence/signed-note.js';
import { createLogger } from '../../src/telemetry/logger.js';
import { linesOf } from '../audit/verify-log.js';
import { SignedLog } from '../audit/signed-log.js';

async function audit(...args: string[]) {
  let [out, err] = ['', ''];
  const status = await run(['audit', ...args], { out: (text) => (out += text), err: (text) => (err += text) });
  return { status, out, err };
}

/** A signed log of two processes, and what verifies it. */
async function signedLog(directory: string) {
  const signed = new SignedLog(directory);
  await signed.run(6);
  await signed.run(3);
  const keys = `${directory}/keys.txt`;
  writeFileSync(keys, `# of production\n\n${keyText(signed.instance.key)}  # the first one\n`);
  return { signed, keys, options: ['--checkpoints', signed.checkpointFile, '--public-key', keys] };
}

t.test('a log is verified by public key alone, and each run says how far it is signed', async (t) => {
  const { signed, options } = await signedLog(t.testdir());
  const intact = await audit('verify', ...options, signed.file);
  t.equal(intact.status, 0, intact.err);
  t.match(
    intact.out,
    /^run \w{26}: the 8 lines 1 to 8 signed by gw\.example\/a at \S+Z\nrun .* 1 to 5 signed .*\nIntact: /,
  );
  const json = JSON.parse((await audit('verify', '--json', ...options, signed.file)).out) as object;
  t.match(json, { intact: true, proofs: [{ name: 'gw.example/a', signedTo: 8, unsigned: 0, signedAt: /Z$/ }, {}] });

  const lines = linesOf(signed.read());
  writeFileSync(`${signed.file}.cut.gz`, gzipSync(`${lines.slice(0, 10).join('\n')}\n`));
  const cut = await audit('verify', ...options, `${signed.file}.cut.gz`);
  t.equal(cut.status, 1);
  t.match(cut.out, /truncated: the 3 lines 3 to 5 of the run \w{26} are missing, although signed at /);
  t.match(cut.out, /^run .*line 1 signed by .*; 1 line behind them under no signature$/m);

  const plain = await audit('verify', signed.file);
  t.equal(plain.status, 0);
  t.match(plain.out, 'give --checkpoints and --public-key');
});

t.test('one line is proved without the log, and checked without a secret', async (t) => {
  const directory = t.testdir();
  const { signed, keys, options } = await signedLog(directory);
  const lines = linesOf(signed.read());
  const ids = lines.map((line) => (JSON.parse(line) as { event: { id?: string } }).event.id);
  let checked = 0;
  for (const [index, id] of ids.entries()) {
    if (id === undefined) continue; // lines of this test's requests have none
    const proof = await audit('prove', '--id', id, ...options, signed.file);
    t.equal(proof.status, 0, proof.err);
    writeFileSync(`${directory}/proof`, proof.out);
    const { out, status } = await audit('check-proof', '--public-key', keys, `${directory}/proof`);
    t.equal(status, 0);
    t.ok(out.startsWith(`${lines[index] ?? ''}\nProved: it is line `));
    checked += 1;
  }
  t.equal(checked, 4, 'the beginning and the end of both runs');
  const [first = ''] = ids;
  const json = JSON.parse((await audit('prove', '--json', '--id', first, ...options, signed.file)).out) as object;
  t.match(json, { sequence: 1, line: 1, proof: /^c2sp\.org\/tlog-proof@v1\n/ });
  const asJson = await audit('check-proof', '--json', '--public-key', keys, `${directory}/proof`);
  t.match(JSON.parse(asJson.out), { name: 'gw.example/a', sequence: 5, size: 5, line: { event: { sequence: 5 } } });
});

t.test('a proof with another line, index, path, checkpoint or key does not hold', async (t) => {
  const directory = t.testdir();
  const { signed, keys, options } = await signedLog(directory);
  const id = (JSON.parse(linesOf(signed.read())[7] ?? '') as { event: { id: string } }).event.id;
  const { out: proof } = await audit('prove', '--id', id, ...options, signed.file);
  const check = async (text: string, publicKeys = keys): Promise<string> => {
    writeFileSync(`${directory}/proof`, text);
    const { status, err } = await audit('check-proof', '--public-key', publicKeys, `${directory}/proof`);
    return status === 1 ? err : `status ${status}`;
  };
  t.equal(await check(proof), 'status 0');
  const [, extra = ''] = /^extra (.*)$/m.exec(proof) ?? [];
  const changed = Buffer.from(extra, 'base64').toString().replace('"lost":0', '"lost":1');
  t.match(await check(proof.replace(extra, Buffer.from(changed).toString('base64'))), 'its line was changed');
  t.match(await check(proof.replace('index 7', 'index 6')), 'another number');
  const path = proof.split('\n').slice(3, -1);
  const [sibling = ''] = path;
  t.match(await check(proof.replace(sibling, Buffer.alloc(32).toString('base64'))), 'not in what was signed');
  t.match(await check(proof.replace(`${sibling}\n`, '')), 'not in what was signed');
  t.match(await check(proof.replace(/\n8\n/, '\n9\n')), 'no given public key');
  const other = new SignedLog(directory, 'other.log');
  writeFileSync(`${directory}/other.txt`, keyText(other.instance.key));
  t.match(await check(proof, `${directory}/other.txt`), 'no given public key');
  writeFileSync(`${directory}/ended.txt`, `${keyText(signed.instance.key)} to 2026-01-01`);
  t.match(await check(proof, `${directory}/ended.txt`), 'does not count for its time');
  t.match(await check('what is no proof'), 'NOT HOLD: expected c2sp.org/tlog-proof@v1');
});

t.test('what is missing for a proof is named', async (t) => {
  const directory = t.testdir();
  const { signed, keys, options } = await signedLog(directory);
  const lines = linesOf(signed.read());
  const { id } = (JSON.parse(lines[7] ?? '') as { event: { id: string } }).event;
  t.match(
    (await audit('prove', '--id', 'nobody', ...options, signed.file)).err,
    'No line of the log has the id nobody',
  );
  writeFileSync(`${directory}/part`, `${lines.slice(4).join('\n')}\n`);
  t.match((await audit('prove', '--id', id, ...options, `${directory}/part`)).err, 'name all files of the run');
  writeFileSync(`${directory}/none`, '');
  const without = ['--checkpoints', `${directory}/none`, '--public-key', keys];
  t.match((await audit('prove', '--id', id, ...without, signed.file)).err, 'No checkpoint covers line 8');
  t.match((await audit('prove', '--id', id, ...options, '-')).err, 'name its files, not standard input');
  // Whoever can write the log may have put it there, with the id and in the form of a line.
  const damaged = (lines[2] ?? '').replace('"url":{', `"note":"${id}","url":{{`);
  writeFileSync(`${directory}/damaged`, `${damaged}\n`);
  const none = await audit('prove', '--id', id, ...options, `${directory}/damaged`);
  t.match(none, { status: 1, err: /No line of the log has the id/ });
  const twice = await audit('prove', '--id', id, ...options, signed.file, signed.file);
  t.match(twice.err, 'Several lines have this id');
  t.equal((await audit('verify', '--checkpoints', signed.checkpointFile, signed.file)).status, 2, 'without a key');
  writeFileSync(`${directory}/bad.txt`, 'no key');
  const bad = await audit(
    'verify',
    '--checkpoints',
    signed.checkpointFile,
    '--public-key',
    `${directory}/bad.txt`,
    signed.file,
  );
  t.match(bad.err, /bad\.txt, line 1: expected a key such as/);
  writeFileSync(`${directory}/bad.txt`, `${keyText(signed.instance.key)} from yesterday`);
  const when = await audit(
    'verify',
    '--checkpoints',
    signed.checkpointFile,
    '--public-key',
    `${directory}/bad.txt`,
    signed.file,
  );
  t.match(when.err, 'expected a time such as');
});

t.test('the first start makes the key, the next ones use it, and its public half is printed', async (t) => {
  const directory = t.testdir({
    'gateway.yaml':
      'accessLog: { checkpoints: { name: gw.example/live, keyFile: key/instance.pem, file: checkpoints.jsonl } }\n',
  });
  const file = `${directory}/gateway.yaml`;
  const config = loadConfig({ file });
  const { checkpoints } = config.accessLog;
  if (checkpoints === null) throw new Error('there are no checkpoints');
  t.match((await audit('public-key', '--config', file)).err, 'the first start of the gateway makes it');
  const log = createLogger('silent');
  await Promise.all([openCheckpoints(config, log), openCheckpoints(config, log), openCheckpoints(config, log)]);
  t.equal(statSync(checkpoints.keyFile).mode & 0o777, 0o600);
  const before = readFileSync(checkpoints.keyFile, 'utf8');
  await openCheckpoints(config, log);
  t.equal(readFileSync(checkpoints.keyFile, 'utf8'), before);
  const key = keyText((await readInstanceKey(checkpoints)).key);
  t.equal((await audit('public-key', '--config', file)).out, `${key}\n`);
  const named = await audit('public-key', '--json', '--key-file', checkpoints.keyFile, '--name', 'gw.example/live');
  t.same(JSON.parse(named.out), { publicKey: key });
  t.notOk(existsSync(checkpoints.file), 'nothing is written before there is a log');

  writeFileSync(checkpoints.keyFile, 'no key', { mode: 0o600 });
  await t.rejects(openCheckpoints(config, log), /instance\.pem cannot be used: expected a private key in PEM/);
  writeFileSync(`${directory}/none.yaml`, '');
  t.match((await audit('public-key', '--config', `${directory}/none.yaml`)).err, 'set accessLog.checkpoints');
});
