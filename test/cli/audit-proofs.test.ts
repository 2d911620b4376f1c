import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import t from 'tap';
import { openCheckpoints } from '../../src/cli/compose/checkpoints.js';
import { readInstanceKey } from '../../src/cli/compose/note-signer.js';
import { loadConfig } from '../../src/config/load.js';
import { WitnessedList } from '../../src/audit/witnessed-list.js';
import { signListHead } from '../../src/evidence/submission.js';
import { keyText, NoteSigner } from '../../src/evidence/signed-note.js';
import { createLogger } from '../../src/telemetry/logger.js';
import { linesOf } from '../audit/verify-log.js';
import { SignedLog } from '../audit/signed-log.js';
import { ran } from './ran.js';

const audit = (...args: string[]) => ran('audit', ...args);

/** A signed log of two processes, and the options to verify it. */
async function signedLog(directory: string) {
  const signed = new SignedLog(directory);
  await signed.run(6);
  await signed.run(3);
  const keys = `${directory}/keys.txt`;
  writeFileSync(keys, `# of production\n\n${keyText(signed.instance.key)}  # the first one\n`);
  return { signed, keys, options: ['--checkpoints', signed.checkpointFile, '--public-key', keys] };
}

t.test("a log is verified with the public key only, and the extent of each run's signatures is reported", async (t) => {
  const { signed, options } = await signedLog(t.testdir());
  const intact = await audit('verify', ...options, signed.file);
  t.equal(intact.status, 0, intact.err);
  t.match(
    intact.out,
    /^log run \w{26}: the 8 lines 1 to 8 signed by gw\.example\/a at \S+Z\nlog run .* 1 to 5 signed .*\nIntact: /,
  );
  const json = JSON.parse((await audit('verify', '--json', ...options, signed.file)).out) as object;
  t.match(json, { intact: true, proofs: [{ name: 'gw.example/a', signedTo: 8, unsigned: 0, signedAt: /Z$/ }, {}] });

  const lines = linesOf(signed.read());
  writeFileSync(`${signed.file}.cut.gz`, gzipSync(`${lines.slice(0, 10).join('\n')}\n`));
  const cut = await audit('verify', ...options, `${signed.file}.cut.gz`);
  t.equal(cut.status, 1);
  t.match(
    cut.out,
    /truncated: the 3 lines 3 to 5 of the log run \w{26} are missing, but the gateway signed this part of the log at /,
  );
  t.match(cut.out, /^log run .*line 1 signed by .*; then 1 unsigned line; missing: 3 signed lines$/m);

  const plain = await audit('verify', signed.file);
  t.equal(plain.status, 0);
  t.match(plain.out, 'add --checkpoints and --public-key');
});

t.test("the log's secret proves no log with signed checkpoints, unless the configuration expects them", async (t) => {
  const directory = t.testdir({ secret: 'a secret of the tests alone\n' });
  const { signed } = await signedLog(directory);
  const configured = (checkpoints: object | null): string => {
    const file = `${directory}/gateway.yaml`;
    writeFileSync(file, JSON.stringify({ accessLog: { secretFile: `${directory}/secret`, checkpoints } }));
    return file;
  };
  const unkeyed = { status: 1, out: /^\S+access\.log:8: unkeyed: the chain \w{26} is hashed without the secret, so/ };
  t.match(await audit('verify', '--secret-file', `${directory}/secret`, signed.file), unkeyed);
  t.match(await audit('verify', '--config', configured(null), signed.file), unkeyed);
  const signs = { name: 'gw.example/a', keyFile: 'instance.pem', file: 'checkpoints.jsonl' };
  t.match(await audit('verify', '--config', configured(signs), signed.file), {
    status: 0,
    out: /^note: without signed checkpoints, .* add --checkpoints and --public-key\nIntact: /,
  });
});

t.test('audit summary verifies the log on demand, and fails if there are findings', async (t) => {
  const directory = t.testdir();
  const { signed, keys, options } = await signedLog(directory);
  const html = `${directory}/page.html`;
  const [whole, cut] = [signed.file, `${directory}/cut.log`];
  const page = async (...args: string[]) => {
    const { status, out, err } = await audit('summary', '--html', html, ...args);
    return { status, out, err, page: readFileSync(html, 'utf8').replace(/\s+/g, ' ') };
  };
  const empty = await page(whole);
  t.match(empty, {
    status: 0,
    out: 'No requests to count.\n',
    page: 'Not verified: lines may have been changed, removed or added.',
  });
  t.notMatch(empty.page, 'Gaps and other findings');
  const intact = await page('--verify', ...options, '--code', 'accepted', whole);
  t.match(intact, {
    status: 0,
    out: '\nIntact: 0 findings in 13 lines, 2 log runs compared with signed checkpoints.\n',
    page: 'Intact: 0 findings in 13 lines',
  });
  t.match(intact.page, /<td>gw\.example\/a<\/td><td>signed<\/td><td>1 to 8, \S+Z<\/td><td><\/td><td>0<\/td>/);
  t.notMatch(intact.page, 'Not verified');
  t.match((await page('--verify', whole)).out, 'no signed checkpoints were given');

  writeFileSync(cut, `${linesOf(signed.read()).slice(0, 10).join('\n')}\n`);
  const found = await page('--verify', ...options, cut);
  t.match(found, {
    status: 1,
    err: 'NOT INTACT: 2 findings in 10 lines, 2 log runs compared with',
    page: 'NOT INTACT',
  });
  t.match(found.page, /cut\.log:10<\/td><td>truncated<\/td><td>the 3 lines 3 to 5 of the log run/);
  t.match(found.page, /<td>partly signed<\/td><td>1 to 1, .*<td>1<\/td>/);
  const json = await audit('summary', '--json', '--verify', ...options, cut);
  t.match(JSON.parse(json.out), { proof: { intact: false, findingCount: 2 } });
  t.match(JSON.parse((await audit('summary', '--json', cut)).out), { proof: null });
  const ofProofs = {
    status: 2,
    err: 'options for the verification, such as --checkpoints, have an effect only with --verify',
  };
  t.match(await audit('summary', ...options, whole), ofProofs);
  t.match(await audit('summary', '--registry', 'http://127.0.0.1:1', whole), ofProofs);
  t.match(await audit('summary', '--verify', '--public-key', keys, whole), {
    status: 2,
    err: 'give both --checkpoints and --public-key',
  });
  writeFileSync(`${directory}/empty.log`, '');
  t.match((await audit('summary', '--verify', `${directory}/empty.log`)).status, 1);
});

t.test("a receipt key without the registry's list causes no findings", async (t) => {
  const directory = t.testdir();
  const witness = NoteSigner.inMemory('control.example');
  const list = new WitnessedList([witness.receiptKey], false);
  const head = signListHead({ size: 3, root: Buffer.alloc(32) }, witness);
  t.equal(list.unlike(head), null);
  t.match(new WitnessedList([witness.receiptKey]).unlike(head), 'checkpoints were removed');
  const { signed, options } = await signedLog(directory);
  const key = `${directory}/witness.txt`;
  writeFileSync(key, keyText(witness.receiptKey));
  const { out, status } = await audit('verify', ...options, '--witness-key', key, signed.file);
  t.match(out, 'Intact');
  t.equal(status, 0);
});

t.test('the proof of one line is verified without the log and without a secret', async (t) => {
  const directory = t.testdir();
  const { signed, keys, options } = await signedLog(directory);
  const lines = linesOf(signed.read());
  const ids = lines.map((line) => (JSON.parse(line) as { event: { id?: string } }).event.id);
  let checked = 0;
  for (const [index, id] of ids.entries()) {
    if (id === undefined) continue; // only lines of requests with an id
    const proof = await audit('prove', '--id', id, ...options, signed.file);
    t.equal(proof.status, 0, proof.err);
    writeFileSync(`${directory}/proof`, proof.out);
    const { out, status } = await audit('check-proof', '--public-key', keys, `${directory}/proof`);
    t.equal(status, 0);
    t.ok(out.startsWith(`${lines[index] ?? ''}\nProved: this is line `));
    checked += 1;
  }
  t.equal(checked, 4, 'the first and last lines of both runs');
  const [first = ''] = ids;
  const json = JSON.parse((await audit('prove', '--json', '--id', first, ...options, signed.file)).out) as object;
  t.match(json, { sequence: 1, line: 1, proof: /^c2sp\.org\/tlog-proof@v1\n/ });
  const asJson = await audit('check-proof', '--json', '--public-key', keys, `${directory}/proof`);
  t.match(JSON.parse(asJson.out), { name: 'gw.example/a', sequence: 5, size: 5, line: { event: { sequence: 5 } } });
});

t.test('a proof with a wrong line, index, path, checkpoint or key is rejected', async (t) => {
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
  t.match(
    await check(proof.replace(extra, Buffer.from(changed).toString('base64'))),
    'the line in the proof was changed',
  );
  t.match(
    await check(proof.replace('index 7', 'index 6')),
    'the number of the line does not match the index in the proof',
  );
  const path = proof.split('\n').slice(3, -1);
  const [sibling = ''] = path;
  t.match(
    await check(proof.replace(sibling, Buffer.alloc(32).toString('base64'))),
    'the line is not in the log that the checkpoint covers',
  );
  t.match(await check(proof.replace(`${sibling}\n`, '')), 'the line is not in the log that the checkpoint covers');
  t.match(await check(proof.replace(/\n8\n/, '\n9\n')), 'no signature matches any of the given public keys');
  const other = new SignedLog(directory, 'other.log');
  writeFileSync(`${directory}/other.txt`, keyText(other.instance.key));
  t.match(await check(proof, `${directory}/other.txt`), 'no signature matches any of the given public keys');
  writeFileSync(`${directory}/ended.txt`, `${keyText(signed.instance.key)} to 2026-01-01`);
  t.match(await check(proof, `${directory}/ended.txt`), 'was not valid at the time of the checkpoint');
  t.match(await check('what is no proof'), 'NOT HOLD: the first line of the proof is not c2sp.org/tlog-proof@v1');
});

t.test('the reason why a line cannot be proved is reported', async (t) => {
  const directory = t.testdir();
  const { signed, keys, options } = await signedLog(directory);
  const lines = linesOf(signed.read());
  const { id } = (JSON.parse(lines[7] ?? '') as { event: { id: string } }).event;
  t.match(
    (await audit('prove', '--id', 'nobody', ...options, signed.file)).err,
    'No line of the given files has the id nobody',
  );
  writeFileSync(`${directory}/part`, `${lines.slice(4).join('\n')}\n`);
  t.match((await audit('prove', '--id', id, ...options, `${directory}/part`)).err, 'name all files of the run');
  writeFileSync(`${directory}/none`, '');
  const without = ['--checkpoints', `${directory}/none`, '--public-key', keys];
  t.match((await audit('prove', '--id', id, ...without, signed.file)).err, 'No signed checkpoint covers line 8');
  t.match(
    (await audit('prove', '--id', id, ...options, '-')).err,
    'The log is read twice, which standard input does not allow: name the files of the log.',
  );
  // An attacker with write access to the log could add a malformed line that contains the id.
  const damaged = (lines[2] ?? '').replace('"url":{', `"note":"${id}","url":{{`);
  writeFileSync(`${directory}/damaged`, `${damaged}\n`);
  const noMatch = await audit('prove', '--id', id, ...options, `${directory}/damaged`);
  t.match(noMatch, { status: 1, err: /No line of the given files has the id/ });
  const twice = await audit('prove', '--id', id, ...options, signed.file, signed.file);
  t.match(twice.err, 'Several lines have this id');
  t.equal(
    (await audit('verify', '--checkpoints', signed.checkpointFile, signed.file)).status,
    2,
    'without a public key',
  );
  writeFileSync(`${directory}/bad.txt`, 'no key');
  const bad = await audit(
    'verify',
    '--checkpoints',
    signed.checkpointFile,
    '--public-key',
    `${directory}/bad.txt`,
    signed.file,
  );
  t.match(bad.err, /bad\.txt, line 1: the public key is not of the form NAME/);
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

t.test('the first start generates the key, later starts reuse it, and its public key is printed', async (t) => {
  const directory = t.testdir({
    'gateway.yaml':
      'accessLog: { checkpoints: { name: gw.example/live, keyFile: key/instance.pem, file: checkpoints.jsonl } }\n',
  });
  const file = `${directory}/gateway.yaml`;
  const config = loadConfig({ file });
  const { checkpoints } = config.accessLog;
  if (checkpoints === null) throw new Error('there are no checkpoints');
  t.match(
    (await audit('public-key', '--config', file)).err,
    'does not exist: the gateway creates it at its first start',
  );
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
  t.notOk(existsSync(checkpoints.file ?? ''), 'nothing is written before the log exists');

  writeFileSync(checkpoints.keyFile, 'no key', { mode: 0o600 });
  await t.rejects(
    openCheckpoints(config, log),
    /instance\.pem cannot be used: the file is not an unencrypted private key in PEM/,
  );
  writeFileSync(`${directory}/none.yaml`, '');
  t.match((await audit('public-key', '--config', `${directory}/none.yaml`)).err, 'set accessLog.checkpoints');
});
