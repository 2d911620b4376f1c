import { appendFileSync, readFileSync } from 'node:fs';
import t from 'tap';
import type { Verdict } from '../../src/audit/chain-check.js';
import { logSecretOf } from '../../src/telemetry/chain.js';
import { openLog, testSecret } from '../telemetry/open-log.js';
import { requestLine, sampleLog } from './sample-log.js';
import { kindsOf, linesOf, verify, verifyLines } from './verify-log.js';

/** The place of the first finding, as file:line. */
function firstPlace({ findings: [first] }: Verdict): string {
  return first === undefined ? 'nowhere' : `${first.file}:${first.line}`;
}

t.test('every edited, deleted, swapped, repeated, inserted, truncated or spliced line is located', async (t) => {
  const files = await sampleLog(t.testdir());
  const [one, two] = files.map(linesOf) as [string[], string[]];
  const all = [...one, ...two];
  t.equal(all.length, 20);
  const whole = verify(files);
  t.same([whole.intact, whole.lines, whole.chains.length, whole.findings, whole.notes], [true, 20, 2, [], []]);
  const placeOf = (index: number): string => (index < one.length ? `1:${index + 1}` : `2:${index - one.length + 1}`);
  const split = (lines: readonly string[], firstLength = one.length): Verdict =>
    verifyLines([lines.slice(0, firstLength), lines.slice(firstLength)]);
  const missed: string[] = [];
  const expectFound = (what: string, verdict: Verdict, places: readonly string[]): void => {
    if (verdict.intact || !places.includes(firstPlace(verdict))) missed.push(`${what}: ${firstPlace(verdict)}`);
  };

  for (const [index, line] of all.entries()) {
    for (let at = 0; at < line.length; at += 1) {
      const changed = line.slice(0, at) + String.fromCharCode(line.charCodeAt(at) ^ 1) + line.slice(at + 1);
      expectFound(`byte ${at} of ${placeOf(index)}`, split(all.toSpliced(index, 1, changed)), [placeOf(index)]);
    }
    const after = placeOf(index + 1);
    const isLast = index === all.length - 1;
    const firstLength = index < one.length ? one.length - 1 : one.length;
    // A gap shows at the following line, and a missing end at the new last line.
    const gap =
      index < one.length - 1
        ? placeOf(index)
        : index === one.length - 1
          ? '2:1'
          : isLast
            ? placeOf(index - 1)
            : placeOf(index);
    expectFound(`${placeOf(index)} deleted`, split(all.toSpliced(index, 1), firstLength), [gap]);
    expectFound(
      `${placeOf(index)} repeated`,
      split(
        [...all.slice(0, index + 1), line, ...all.slice(index + 1)],
        index < one.length ? one.length + 1 : one.length,
      ),
      [placeOf(index + 1), `1:${index + 2}`],
    );
    // The removal of all lines of the last process cannot be detected.
    if (all[index - 1]?.includes('"reason":"end"') !== true) {
      const cut = split(all.slice(0, index));
      expectFound(`cut before ${placeOf(index)}`, cut, [index <= one.length ? '2:1' : placeOf(index - 1), '1:1']);
    }
    const half = Buffer.from(
      `${all
        .slice(index < one.length ? 0 : one.length, index)
        .map((each) => `${each}\n`)
        .join('')}${line.slice(0, 200)}`,
    );
    const cutWithin = index < one.length ? verify([half, files[1] ?? half]) : verify([files[0] ?? half, half]);
    expectFound(`cut within ${placeOf(index)}`, cutWithin, [placeOf(index)]);
    expectFound(
      `insertion before ${placeOf(index)}`,
      split(all.toSpliced(index, 0, '{"event":{}}'), index <= one.length ? one.length + 1 : one.length),
      [placeOf(index), `1:${index + 1}`],
    );
    if (!isLast) {
      const swapped = all.toSpliced(index, 2, all[index + 1] ?? '', line);
      expectFound(`${placeOf(index)} and ${after} swapped`, split(swapped), [placeOf(index), after]);
    }
  }
  t.same(missed, []);
});

t.test('lines of another log with the same secret are located where they were spliced in', async (t) => {
  const [one, two] = (await sampleLog(t.testdir())).map(linesOf) as [string[], string[]];
  const other = (await sampleLog(t.testdir())).map(linesOf) as [string[], string[]];
  for (const at of [1, 5, one.length]) {
    const spliced = verifyLines([one.toSpliced(at, 0, ...other[0].slice(2, 4)), two]);
    t.equal(firstPlace(spliced), `1:${at + 1}`);
    t.equal(spliced.findings[0]?.kind, 'headless');
  }
  const replaced = verifyLines([other[0], two]);
  t.equal(replaced.intact, false, 'one file of another log');
  const wholeChain = [...other[0], ...other[1].slice(0, 6)];
  const within = verifyLines([one.toSpliced(3, 0, ...wholeChain), two]);
  t.match(within.findings[0], { file: '1', line: 4, kind: 'foreign' }, 'a whole chain');
  const middleGone = verifyLines([one, [...two.slice(0, 3), ...two.slice(6)]]);
  t.equal(middleGone.intact, false, 'a cut before the next process');
  const firstGone = verifyLines([[...two.slice(6)]]);
  t.match(
    firstGone.findings[0],
    { file: '1', line: 1, kind: 'missing' },
    'the predecessor named in the first chain is missing',
  );
});

t.test('each change is reported as its own kind, without follow-up findings', async (t) => {
  const [one, two] = (await sampleLog(t.testdir())).map(linesOf) as [string[], string[]];
  const edited = one.with(3, (one[3] ?? '').replace('accepted', 'accepteD'));
  t.same(kindsOf(verifyLines([edited, two])), ['1:4 edited']);
  const rehashed = one.with(
    3,
    (one[3] ?? '').replace(/(?<="hash":")./, (digit) => (digit === '0' ? '1' : '0')),
  );
  t.equal(kindsOf(verifyLines([rehashed, two])).length, 1, 'a changed hash is one finding');
  const renumbered = one.with(3, (one[3] ?? '').replace('"sequence":4', '"sequence":900'));
  t.same(kindsOf(verifyLines([renumbered, two])), ['1:4 edited']);
  const repeated = renumbered.toSpliced(5, 0, renumbered[4] ?? '');
  t.same(kindsOf(verifyLines([repeated, two])), ['1:4 edited', '1:6 repeated'], 'a changed number leaves no gap');
  t.same(kindsOf(verifyLines([one.toSpliced(3, 2), two])), ['1:4 missing']);
  const start = two.findIndex((line) => line.includes('"reason":"start"'));
  const accusing = two.with(
    start,
    (two[start] ?? '').replace(/(?<="predecessor":.*?"hash":")./, (digit) => (digit === '0' ? '1' : '0')),
  );
  t.same(
    kindsOf(verifyLines([one, accusing])),
    [`2:${start + 1} edited`],
    'a changed reference does not accuse the predecessor',
  );
  t.same(kindsOf(verifyLines([one.toSpliced(3, 2, one[4] ?? '', one[3] ?? ''), two])), [
    '1:4 missing',
    '1:5 reordered',
  ]);
  const ahead = one.toSpliced(4, 1).toSpliced(2, 0, one[4] ?? '');
  t.same(
    kindsOf(verifyLines([ahead, two])),
    ['1:3 missing', '1:4 reordered', '1:5 reordered'],
    'a line moved two lines ahead',
  );
  t.same(kindsOf(verifyLines([one, two.slice(0, -1)])), [`2:${two.length - 1} truncated`]);
  t.same(kindsOf(verify([Buffer.from(''), Buffer.from(`${two.join('\n')}\n`)])).slice(0, 1), ['1:1 truncated']);
});

t.test('concatenated files are intact as a stream; within one file nothing may precede the start', async (t) => {
  const file = `${t.testdir()}/access.log`;
  for (const name of [`${file}.1`, file]) await openLog(name).close(30_000);
  const joined = Buffer.concat([readFileSync(`${file}.1`), readFileSync(file)]);
  t.same(kindsOf(verify([joined])), ['1:3 foreign']);
  for (const verdict of [verify([joined], {}, ['-']), verify([joined], { partial: true })]) {
    t.same(kindsOf(verdict), []);
    t.match(verdict.notes, [/:3: a new file begins here, so the input consists of several files$/]);
  }
});

t.test('a probable mistake of the user is suggested once', async (t) => {
  const [one, two] = (await sampleLog(t.testdir())).map(linesOf) as [string[], string[]];
  const other = logSecretOf(Buffer.from('a secret of nobody at all'));
  const wrong = verifyLines([one, two], { secrets: [other] });
  t.ok(wrong.findingCount > 10);
  t.same(wrong.notes, ['no line could be verified: check the secret']);
  const turned = verifyLines([two, one]);
  t.ok(turned.findingCount > 5);
  t.same(turned.notes.slice(1), ['some lines are repeated or out of order: pass each file once, oldest first']);
  const edited = one.with(3, (one[3] ?? '').replace('accepted', 'accepteD'));
  t.same(verifyLines([edited, two]).notes, []);
});

t.test('a chain without any verified line, next to others, suggests that the secret was another', async (t) => {
  const file = `${t.testdir()}/access.log`;
  const earlier = logSecretOf(Buffer.from('the secret before its renewal'));
  const ids: string[] = [];
  for (const secret of [earlier, earlier, testSecret]) {
    const log = openLog(file, { secret });
    log.write(requestLine());
    await log.close(30_000);
    ids.push((linesOf(readFileSync(file)).at(-1) ?? '').slice('{"service":{"ephemeral_id":"'.length).slice(0, 26));
  }
  const contents = readFileSync(file);
  const verdict = verify([contents]);
  t.equal(verdict.findingCount, 6);
  t.same(verdict.notes, [
    `no line of the chain ${ids[0]} and of 1 more chain could be verified: ` +
      'if an earlier secret was in use, add its file with another --secret-file',
  ]);
  t.same(verify([contents], { secrets: [testSecret, earlier] }).notes, []);
  const alone = linesOf(contents)
    .filter((line) => line.includes(ids[1] ?? ''))
    .slice(0, 1);
  const { notes } = verifyLines([[...alone, ...linesOf(contents).slice(6)]]);
  t.notOk(
    notes.some((note) => note.includes('could be verified')),
    'one edited line is only that finding',
  );
});

t.test('an unverifiable line is a note, and is verified once more information is given', async (t) => {
  const [one, two] = (await sampleLog(t.testdir())).map(linesOf) as [string[], string[]];
  const later = verifyLines([two]);
  t.ok(later.intact);
  t.match(later.notes, [/^1:1: an earlier file was not given; it contains the 8 lines 1 to 8 of the chain/]);
  const earlier = verifyLines([one]);
  t.ok(earlier.intact);
  t.match(earlier.notes, [/continues in another file, which was not given$/]);
  const running = verifyLines([one, two.slice(0, -1)], { running: true });
  t.ok(running.intact);
  t.match(running.notes, [/has not ended yet: missing lines at its end cannot be detected$/]);
  const part = verifyLines([one.slice(3)], { partial: true });
  t.ok(part.intact);
  t.equal(part.chains[0]?.unchecked, 1);
  t.notOk(verifyLines([one.slice(3)]).intact);
});

// Regression: a verifier that was not given the secret reported genuine lines as edited, and did not mention the
// secret. A later version of the verifier ended with an error, which hid all findings.
t.test('a part without a checkpoint line, in which no line matches without a secret, suggests one', async (t) => {
  const file = `${t.testdir()}/access.log`;
  for (const secret of [testSecret, null]) {
    const log = openLog(file, { secret });
    for (let count = 0; count < 4; count += 1) log.write(requestLine({ path: `/v1/payouts/${count}` }));
    await log.close(30_000);
  }
  const lines = linesOf(readFileSync(file));
  const partial = { partial: true, running: true };
  const withoutSecret = { ...partial, secrets: [] };
  const ofSecret = lines.slice(1, 4);
  t.ok(verifyLines([ofSecret], partial).intact);
  const hint = /^no line could be verified without a secret: .* --secret-file or --config; otherwise the lines were/;
  const unproved = verifyLines([ofSecret], withoutSecret);
  t.same(kindsOf(unproved), ['1:2 edited', '1:3 edited']);
  t.match(unproved.notes.at(-1), hint);
  const plain = lines.slice(7, 10);
  t.ok(verifyLines([plain], withoutSecret).intact);
  const edited = plain.with(1, (plain[1] ?? '').replace('accepted', 'accepteD'));
  const proved = verifyLines([edited], withoutSecret);
  t.same(kindsOf(proved), ['1:2 edited']);
  t.notMatch(proved.notes.at(-1), hint, 'the last line matches without a secret');
  const inserted = verifyLines([[...edited.slice(0, 2), '{"event":{}}']], withoutSecret);
  t.same(kindsOf(inserted), ['1:2 edited', '1:3 foreign'], 'the hint takes the place of no finding');
  t.match(inserted.notes.at(-1), hint);
  const start = (lines[6] ?? '').replace('"@timestamp":"2', '"@timestamp":"1');
  const { findings, notes } = verifyLines([[start]], withoutSecret);
  t.match(findings[0], { kind: 'edited' });
  t.same(notes, [], 'this line states that no secret is in use');
});

t.test('with --running only the last file may be incomplete', async (t) => {
  const [one, two] = (await sampleLog(t.testdir())) as [Buffer, Buffer];
  const running = { running: true };
  const begin = two.lastIndexOf(0x0a, two.length - 2) + 1;
  const missed: number[] = [];
  for (let length = begin + 1; length < two.length; length += 1) {
    const { intact, notes } = verify([one, two.subarray(0, length)], running);
    if (!intact || notes[0]?.startsWith('2:12: incomplete line: the gateway may') !== true) missed.push(length - begin);
  }
  t.same(missed, [], 'any length of the last line is accepted');
  const cut = two.subarray(0, -50);
  t.same(kindsOf(verify([one, cut])).slice(0, 2), ['2:12 truncated', '2:12 foreign'], 'the gateway is not running');
  t.notOk(verify([cut, one], running).intact, 'the incomplete file is not the last');
  const last = linesOf(two).at(-1) ?? '';
  const others = ['x', '{}', `${last.slice(0, 40)}"}}`, last.replace('"end"', '"End"'), last.slice(1), 'x'.repeat(300)];
  for (const other of others) {
    const verdict = verify([one, Buffer.concat([two.subarray(0, begin), Buffer.from(other)])], running);
    t.match(kindsOf(verdict)[0], /^2:12 (?:foreign|edited)$/, `not the start of a valid line: ${other}`);
  }

  const nothing = Buffer.alloc(0);
  const rotated = verify([one, nothing], running);
  t.match(
    [rotated.intact, rotated.notes],
    [true, [/^2:1: the file is empty: the gateway may not have written to it yet$/, /^1:8: /]],
  );
  t.ok(verify([one.subarray(0, -20), nothing], running).intact, 'the last line may be incomplete');
  t.same(kindsOf(verify([one, nothing])), ['2:1 truncated']);
  t.same(kindsOf(verify([one, nothing, two], running)), ['2:1 truncated'], 'an empty file between others');
  t.same(kindsOf(verify([nothing], running)), ['1:1 truncated'], 'only an empty file is given');
});

t.test('an incomplete line of a killed process is accepted, and a line put in its place is a finding', async (t) => {
  const file = `${t.testdir()}/access.log`;
  await openLog(file).close(30_000);
  appendFileSync(file, '{"service":{"eph');
  const second = openLog(file);
  second.write(requestLine());
  await second.close(30_000);
  const contents = readFileSync(file);
  const verdict = verify([contents]);
  t.ok(verdict.intact);
  t.match(verdict.notes, [/^1:3: incomplete line of a process that was killed/]);
  const lines = linesOf(contents);
  t.match(verifyLines([lines.with(2, 'something else')]).findings, [{ line: 3, kind: 'foreign' }]);
  t.match(verifyLines([lines.toSpliced(2, 1)]).findings, [{ line: 3, kind: 'missing' }]);
});

t.test('a log is verified only with its own secret, old or new', async (t) => {
  const file = `${t.testdir()}/access.log`;
  await openLog(file).close(30_000);
  const renewed = logSecretOf(Buffer.from('the next secret of the tests'));
  await openLog(file, { secret: renewed }).close(30_000);
  const contents = readFileSync(file);
  t.ok(verify([contents], { secrets: [renewed, testSecret] }).intact);
  t.notOk(verify([contents], { secrets: [renewed] }).intact);
  t.throws(() => verify([contents], { secrets: [] }), /The log is hashed with a secret/);
  const plain = `${t.testdir()}/plain.log`;
  await openLog(plain, { secret: null }).close(30_000);
  t.ok(verify([readFileSync(plain)], { secrets: [] }).intact);
  const downgraded = verify([readFileSync(plain)]);
  t.same(kindsOf(downgraded), ['1:1 unkeyed'], 'a chain that needs no secret cannot replace it');
});
