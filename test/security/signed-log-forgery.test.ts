import { appendFileSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import fc from 'fast-check';
import t from 'tap';
import { checkProof } from '../../src/audit/line-prover.js';
import { parseSealedLine } from '../../src/audit/sealed-line.js';
import { readPinned } from '../../src/audit/pinned-keys.js';
import { type Checkpoint, readCheckpoint, runKeyName, signCheckpoint } from '../../src/evidence/checkpoint.js';
import { leafHash } from '../../src/evidence/merkle-tree.js';
import { InvalidNote, NoteSigner } from '../../src/evidence/signed-note.js';
import { requestLine } from '../audit/sample-log.js';
import { SignedLog } from '../audit/signed-log.js';
import { kindsOf, linesOf } from '../audit/verify-log.js';
import { sampleInstance, sampleLines, sampleName } from '../evidence/sample-run.js';
import { openLog, testSecret, until } from '../telemetry/open-log.js';
import { fileOf, rehashed, rootOf } from './forged-lines.js';

t.test('an untouched log is intact, and each line is signed', async (t) => {
  const signed = new SignedLog(t.testdir());
  await signed.run(10);
  await signed.run(5);
  const verdict = signed.verify([signed.read()]);
  t.same(kindsOf(verdict), []);
  t.match(verdict.proofs, [
    { name: 'gw.example/a', signedTo: 12, unsigned: 0 },
    { name: 'gw.example/a', signedTo: 7, unsigned: 0 },
  ]);
});

t.test('log truncation is found, also when a restarted process continued the log', async (t) => {
  const signed = new SignedLog(t.testdir());
  await signed.run(10);
  const lines = linesOf(signed.read());
  for (const remaining of [1, 5, 11]) {
    const verdict = signed.verify([fileOf(lines.slice(0, remaining))]);
    t.match(
      kindsOf(verdict),
      [`1:${remaining} truncated`, `1:${remaining} truncated`],
      `${remaining} of 12 lines remain`,
    );
    t.match(verdict.findings[0]?.message, /(?:is|are) missing, but the gateway signed this part of the log at/);
  }
  writeFileSync(signed.file, fileOf(lines.slice(0, 8)));
  await signed.run(3);
  const verdict = signed.verify([signed.read()]);
  t.same(kindsOf(verdict), ['1:8 truncated'], 'the next process took the truncated log for complete');
  t.match(verdict.findings[0]?.message, 'the 4 lines 9 to 12 of the log run');
});

t.test('a forged end line does not hide a truncation', async (t) => {
  const signed = new SignedLog(t.testdir());
  await signed.run(10);
  const lines = linesOf(signed.read());
  const forged = rehashed([...lines.slice(0, 5), lines[11] ?? '']);
  t.same(kindsOf(signed.verify([fileOf(forged)])), ['1:6 truncated']);
});

t.test('a removed run is reported missing, with its file or within one', async (t) => {
  const signed = new SignedLog(t.testdir());
  await signed.run(4);
  const first = signed.read();
  await signed.run(4);
  const second = signed.read().subarray(first.length);
  t.same(kindsOf(signed.verify([first])), ['checkpoints:4 missing'], 'the newest run is removed');
  t.ok(kindsOf(signed.verify([second])).includes('checkpoints:2 missing'), 'the first run is removed');
  rmSync(signed.file);
  await signed.run(4);
  const verdict = signed.verify([signed.read()]);
  t.same(kindsOf(verdict), ['checkpoints:2 missing', 'checkpoints:4 missing'], 'the file is removed with its runs');
});

t.test('a changed line with recomputed hashes does not match the signature', async (t) => {
  const signed = new SignedLog(t.testdir());
  await signed.run(10);
  const lines = linesOf(signed.read());
  const changed = rehashed(lines.with(4, (lines[4] ?? '').replace('/v1/payouts/3', '/v1/payouts/9')));
  const verdict = signed.verify([fileOf(changed)]);
  t.same(kindsOf(verdict), ['1:12 edited']);
  t.match(
    verdict.findings[0]?.message,
    'the content of the 11 lines 2 to 12 of the log run differs from what the gateway signed at',
  );
  t.same(verdict.proofs?.[0]?.signedTo, 1, 'the part signed before the change is still valid');
});

t.test('random changes of a log with recomputed hashes are all found', async (t) => {
  const signed = new SignedLog(t.testdir());
  await signed.run(20);
  const lines = linesOf(signed.read());
  const index = fc.nat({ max: lines.length - 1 });
  const change = fc.oneof(
    fc.tuple(index, fc.nat({ max: 200 }), fc.integer({ min: 1, max: 255 })).map(([at, offset, mask]) => {
      const bytes = Buffer.from(lines[at] ?? '');
      const position = 70 + (offset % (bytes.length - 160));
      bytes[position] = (bytes[position] ?? 0) ^ mask;
      return lines.with(at, bytes.toString('latin1'));
    }),
    index.map((at) => lines.toSpliced(at, 1)),
    fc.tuple(index, index).map(([from, to]) => lines.toSpliced(to, 0, lines[from] ?? '')),
    fc.tuple(index, index).map(([one, other]) => lines.with(one, lines[other] ?? '').with(other, lines[one] ?? '')),
  );
  const numRuns = 1_000;
  let [different, found] = [0, 0];
  fc.assert(
    fc.property(change, (changed) => {
      const file = fileOf(rehashed(changed));
      if (file.equals(signed.read())) return;
      different += 1;
      if (!signed.verify([file]).intact) found += 1;
    }),
    { numRuns },
  );
  t.ok(different > numRuns / 2);
  t.equal(found, different);
});

t.test('checkpoints of another signer, key or time are not accepted', async (t) => {
  const signed = new SignedLog(t.testdir());
  await signed.run(3);
  const files = [signed.read()];
  const [key] = signed.keys;
  if (key === undefined) throw new Error('there is no key');
  const other = { ...key, key: NoteSigner.inMemory('gw.example/a').key };
  const refused = ['checkpoints:1 unsigned', 'checkpoints:2 unsigned', '1:5 unsigned'];
  t.same(kindsOf(signed.verify(files, { keys: [other] })), refused);
  t.same(kindsOf(signed.verify(files, { keys: [{ ...key, to: Date.now() - 3_600_000 }] })), refused);
  t.same(kindsOf(signed.verify(files, { keys: [{ ...key, from: Date.now() + 3_600_000 }] })), refused);
  t.same(kindsOf(signed.verify(files, { keys: [other, key] })), [], 'one of two keys is sufficient');
  t.same(kindsOf(signed.verify(files, { notes: [...signed.notes, 'no note'] })), ['checkpoints:3 unsigned']);
});

t.test('a stolen instance key cannot sign for a run that was signed before', async (t) => {
  const signed = new SignedLog(t.testdir());
  await signed.run(6);
  const lines = linesOf(signed.read());
  const forged = rehashed(lines.with(3, (lines[3] ?? '').replace('/v1/payouts/2', '/v1/payouts/7')));
  const { run, name } = readCheckpoint(signed.notes[0] ?? '', [signed.instance.key]);
  const checkpoint: Checkpoint = { name, run, size: 8, root: rootOf(forged), occasion: 'end', at: Date.now() };
  const note = signCheckpoint(checkpoint, signed.instance, NoteSigner.inMemory(runKeyName(name, run)));
  const kinds = kindsOf(signed.verify([fileOf(forged)], { notes: [...signed.notes, note] }));
  t.same(kinds, ['1:8 edited', 'checkpoints:3 forked']);
  const withoutGenuineEnd = signed.verify([fileOf(forged)], { notes: [signed.notes[0] ?? '', note] });
  t.same(kindsOf(withoutGenuineEnd), ['checkpoints:2 forked'], 'also if the genuine end checkpoint was removed');
});

t.test('a run invented with a stolen instance key leaves the genuine run missing', async (t) => {
  const directory = t.testdir();
  const signed = new SignedLog(directory);
  await signed.run(6);
  const invented = new SignedLog(directory, 'invented.log');
  Object.assign(invented, { instance: signed.instance });
  await invented.run(6);
  t.same(kindsOf(signed.verify([invented.read()])), ['checkpoints:2 missing']);
});

t.test('two copies of a process that continue the same chain are a fork', async (t) => {
  const signed = new SignedLog(t.testdir());
  await signed.run(6);
  const before = signed.read();
  await signed.run(2);
  const first = signed.read();
  writeFileSync(signed.file, before);
  await signed.run(3);
  const kinds = kindsOf(signed.verify([signed.read()]));
  t.same(kinds, ['checkpoints:5 forked', 'checkpoints:4 missing'], 'the disk was restored to an earlier state');
  t.same(kindsOf(signed.verify([first])), ['checkpoints:5 forked', 'checkpoints:6 missing']);
});

// A second process opens the log of a running one before it finds that its port is in use. Regression: the verification
// then reported the first process as a forgery.
t.test('a process that started on the log of a running one is no fork, but restored disks still are', async (t) => {
  const directory = t.testdir({ running: {}, killed: {} });
  const signed = new SignedLog(`${directory}/running`);
  const { log } = signed.open(4, 20);
  await until(() => existsSync(signed.file) && linesOf(signed.read()).length === 5);
  await signed.run(0);
  for (let count = 0; count < 3; count += 1) log.write(requestLine());
  const isSigned = (size: number): boolean => signed.notes.some((note) => note.split('\n')[1] === String(size));
  await until(() => isSigned(8));
  t.same(kindsOf(signed.verify([signed.read()], { running: true })), [], 'the first process runs');

  // The files that a kill would leave. The next process finds the last line of the first one.
  const killed = new SignedLog(`${directory}/killed`, 'access.log', signed.instance);
  const left = signed.read();
  writeFileSync(killed.file, left);
  writeFileSync(killed.checkpointFile, signed.notes.map((note) => `${JSON.stringify({ note })}\n`).join(''));
  await killed.run(2);
  const whole = killed.read();
  const verdict = killed.verify([whole]);
  t.same(kindsOf(verdict), [], 'the first process was killed');
  t.same(verdict.proofs?.map(({ signedTo, unsigned }) => [signedTo, unsigned]).toSorted(), [
    [2, 0],
    [4, 0],
    [8, 0],
  ]);
  await log.close(30_000);
  t.same(kindsOf(signed.verify([signed.read()])), [], 'or it ended');

  const stored = readFileSync(killed.checkpointFile);
  for (const [restored, what] of [
    [left, 'the end of the first run is continued twice'],
    [fileOf(linesOf(left).slice(0, 5)), 'the first run signed no line after this start'],
  ] as const) {
    writeFileSync(killed.file, restored);
    writeFileSync(killed.checkpointFile, stored);
    await killed.run(1);
    const kinds = kindsOf(killed.verify([whole]));
    t.equal(kinds.filter((kind) => kind.endsWith(' forked')).length, 1, what);
    t.equal(kinds.filter((kind) => kind.endsWith(' missing')).length, 1, `${what}: its lines are missing`);
  }
});

t.test('lines appended after the end of a run are found', async (t) => {
  const signed = new SignedLog(t.testdir());
  await signed.run(4);
  const lines = linesOf(signed.read());
  const longer = rehashed([...lines, lines[3] ?? '', lines[5] ?? '']);
  t.same(kindsOf(signed.verify([fileOf(longer)])), ['1:7 foreign', '1:8 foreign']);
  // The process was killed. The next process signs the last line that it found.
  const killed = fileOf(lines.slice(0, 4));
  writeFileSync(signed.file, killed);
  await signed.run(1);
  const [start = '', , ...next] = signed.notes;
  const appended = fileOf(rehashed([...lines.slice(0, 4), lines[2] ?? '']));
  const verdict = signed.verify([Buffer.concat([appended, signed.read().subarray(killed.length)])], {
    notes: [start, ...next],
  });
  t.same(kindsOf(verdict)[0], '1:5 foreign');
  t.match(verdict.findings[0]?.message, 'the log run ended with line 4');
});

t.test('the next process signs what a killed process had written', async (t) => {
  const signed = new SignedLog(t.testdir());
  await signed.run(4);
  const killed = linesOf(signed.read()).slice(0, 4);
  writeFileSync(signed.file, fileOf(killed));
  await signed.run(1);
  const nextRun = signed.read().subarray(fileOf(killed).length);
  const [start = '', , ...next] = signed.notes;
  const messages = (lines: readonly string[]): string =>
    signed
      .verify([Buffer.concat([fileOf(lines), nextRun])], { notes: [start, ...next] })
      .findings.map(({ message }) => message)
      .join('\n');
  t.equal(messages(killed), '');
  const edited = rehashed(killed.with(2, (killed[2] ?? '').replace('/v1/payouts/1', '/v1/payouts/8')));
  t.match(
    messages(edited),
    'line 4 of the log run was changed: its hash is not the hash that the next process found and signed at',
  );
  t.match(
    messages(killed.slice(0, 2)),
    /the 2 lines 3 to 4 of the log run \w{26} are missing, but the gateway signed this part of the log at/,
  );
});

// A start checkpoint states the end of the log that the process found. If it repeated an invalid id or number, the
// registry would reject it, and no later checkpoint would get a receipt.
t.test('log forgery: a line with an id or a number of another form does not invalidate the next start', async (t) => {
  const run = '01M7WJMG35EDK4R664YCSW956';
  const ids = ['I', 'L', 'O', 'U'].map((digit) => [`${run}${digit}`, '7'] as const);
  for (const [id, number] of [...ids, [`${run}W`, '0'], [`${run}W`, '07']] as const) {
    const signed = new SignedLog(t.testdir());
    await signed.run(1);
    const end = `"event":{"id":"a","sequence":${number},"hash":"${'0'.repeat(64)}"}}`;
    appendFileSync(signed.file, `{"service":{"ephemeral_id":"${id}"},${end}\n`);
    await signed.run(1);
    const { occasion, previous } = readCheckpoint(signed.notes[2] ?? '', [signed.instance.key]);
    t.strictSame({ occasion, previous }, { occasion: 'start', previous: null }, `${id} ${number}`);
    t.ok(kindsOf(signed.verify([signed.read()])).includes('1:4 foreign'), `the line is found: ${id} ${number}`);
  }
});

t.test('a line moved to another run is found, regardless of the signer', (t) => {
  const { leaves, lines, tree } = sampleLines(1);
  const [leaf, line] = [leaves[0], lines[0]];
  if (leaf === undefined || line === undefined) throw new Error('there is no line');
  const run = '01M7WJMG35EDK4R664YCSW956X';
  const checkpoint: Checkpoint = { name: sampleName, run, size: 1, root: tree.root(), occasion: 'end', at: 0 };
  const note = signCheckpoint(checkpoint, sampleInstance, NoteSigner.inMemory(runKeyName(sampleName, run)));
  const proof = { previous: '0'.repeat(64), line: Buffer.from(line), index: 0, path: [], note };
  const keys = [{ key: sampleInstance.key, from: -Infinity, to: Infinity }];
  t.throws(() => checkProof(proof, keys), /belong to different log runs/);
  t.end();
});

t.test('a chain without a secret does not verify next to signed ones, whatever algorithm it claims', async (t) => {
  const directory = t.testdir();
  const signed = new SignedLog(directory);
  await signed.run(2);
  const invented = openLog(`${directory}/invented.log`, { secret: null });
  invented.write(requestLine());
  await invented.close(30_000);
  const files = [signed.read(), readFileSync(`${directory}/invented.log`)];
  t.same(kindsOf(signed.verify(files)), ['2:3 unsigned']);
  // A chain from before the first checkpoint verifies with the secret of that time.
  const former = openLog(`${directory}/former.log`);
  former.write(requestLine());
  await former.close(30_000);
  const verdict = signed.verify([readFileSync(`${directory}/former.log`), signed.read()], { secrets: [testSecret] });
  t.same(kindsOf(verdict), []);
});

t.test('a line that names a secret hides nothing from a verification by public key', async (t) => {
  const signed = new SignedLog(t.testdir());
  await signed.run(6);
  const lines = linesOf(signed.read());
  const start = (lines[0] ?? '').replace('"rfc6962-sha256"', '"hmac-sha256"');
  const inserted = start.replace(/(?<="ephemeral_id":")\w{26}/, '01M7WJMG35EDK4R664YCSW956X');
  const cut = signed.verify([fileOf([...lines.slice(0, 5), inserted])]);
  t.same(kindsOf(cut), ['1:6 unsigned', '1:5 truncated', '1:5 truncated'], 'the cut is still found');
  t.match(cut.findings[0]?.message, /is hashed with a secret that was not given, so its lines may be forged/);
  t.match(cut.chains[1], { unchecked: 1, edited: 0 });
  const edited = lines.with(0, start).with(3, (lines[3] ?? '').replace('/v1/payouts/2', '/v1/payouts/7'));
  t.same(kindsOf(signed.verify([fileOf(edited)])), ['1:1 edited', '1:4 edited'], 'in the first line of a signed run');
});

t.test('unsigned lines are reported as unsigned', async (t) => {
  const signed = new SignedLog(t.testdir());
  await signed.run(4);
  const [start = '', end = ''] = signed.notes;
  const killed = linesOf(signed.read()).slice(0, 5);
  const verdict = signed.verify([fileOf(killed)], { notes: [start] });
  t.same(kindsOf(verdict), ['1:5 truncated'], 'the run has no end');
  t.match(verdict.proofs, [{ signedTo: 1, unsigned: 4 }]);
  t.same(kindsOf(signed.verify([signed.read()], { notes: [] })), ['1:6 unsigned'], 'a run without any checkpoint');
  t.same(
    kindsOf(signed.verify([signed.read()], { notes: [end] })),
    [],
    'the end checkpoint covers all lines before it',
  );
});

t.test('a log with a secret still verifies when there are checkpoints', async (t) => {
  const signed = new SignedLog(t.testdir());
  await signed.run(4);
  const text = readFileSync(signed.file, 'utf8');
  t.notMatch(text, 'hmac-sha256');
  t.match(parseSealedLine(Buffer.from(linesOf(signed.read())[0] ?? '')), {
    checkpoint: { algorithm: 'rfc6962-sha256' },
  });
});

/**
 * Forges the lines of a run with these sequence numbers and recomputed hashes. In a line that states the hash of the
 * line before it, that hash is replaced too.
 */
function forge(lines: readonly (readonly [line: string, sequence: number])[]): Buffer {
  let previous = 'f'.repeat(64);
  const forged = lines.map(([line, sequence]) => {
    const text = line
      .slice(0, -76)
      .replace(/"sequence":\d+$/, `"sequence":${sequence}`)
      .replace(/"previous":"[0-9a-f]{64}"/, `"previous":"${previous}"`);
    previous = leafHash(previous, text);
    return `${text},"hash":"${previous}"}}\n`;
  });
  return Buffer.from(forged.join(''));
}

t.test('a forged log that claims an earlier file does not prove a run signed from its first line', async (t) => {
  const signed = new SignedLog(t.testdir());
  await signed.run(6);
  const lines = linesOf(signed.read());
  const [start = '', end = ''] = [lines[0], lines.at(-1)];
  const forgedStart = start.replace('"reason":"start"', '"reason":"file-start"');
  t.equal(signed.verify([signed.read()]).intact, true);
  for (const first of [2, 5, 7]) {
    const numbers = Array.from({ length: 8 - first }, (_, index) => first + index);
    const middle = numbers.slice(1).map((sequence) => [lines[1] ?? '', sequence] as const);
    const verdict = signed.verify([forge([[forgedStart, first], ...middle, [end, 8]])]);
    t.match(verdict, { intact: false, findings: [{ kind: 'unsigned' }] }, `from ${first}`);
    t.match(
      verdict.findings[0]?.message,
      `cannot be verified: it covers the 8 lines 1 to 8, but the given lines begin with line ${first}; add the earlier log files`,
    );
  }
});

t.test('a key of an ended instance is not accepted, although a newer key of the same name is', (t) => {
  const directory = t.testdir();
  const [ended, newer] = [new SignedLog(directory, 'ended.log'), NoteSigner.inMemory('gw.example/a')];
  return ended.run(1).then(() => {
    const { notes, instance } = ended;
    const [note = ''] = notes;
    const keys = (to: number) => [
      { key: instance.key, from: -Infinity, to },
      { key: newer.key, from: to, to: Infinity },
    ];
    t.equal(readPinned(note, keys(Infinity)).occasion, 'start');
    t.throws(
      () => readPinned(note, keys(Date.now() - 60_000)),
      new InvalidNote('the public key of the signature was not valid at the time of the checkpoint'),
    );
    t.throws(() => readPinned(note, keys(Date.now() - 60_000).slice(1)), InvalidNote);
  });
});
