import { readFileSync } from 'node:fs';
import t from 'tap';
import { SignedRuns } from '../../src/audit/signed-runs.js';
import { WitnessedList } from '../../src/audit/witnessed-list.js';
import { readCheckpoint, runKeyName, signCheckpoint } from '../../src/evidence/checkpoint.js';
import { NoteSigner, parseNote } from '../../src/evidence/signed-note.js';
import { uniqueId } from '../../src/telemetry/unique-id.js';
import { SignedLog } from './signed-log.js';

t.test('a log that is cut where its file ended lacks the run that the signed end names', async (t) => {
  const directory = t.testdir();
  const signed = new SignedLog(directory);
  const { log } = signed.open(3);
  await signed.rotate(log, `${directory}/access.log.1`);
  await log.close(30_000);
  const [first, second] = [signed.read(`${directory}/access.log.1`), signed.read()];
  t.equal(signed.verify([first, second]).intact, true);
  const named = signed.notes.filter((note) => note.includes('\nnext '));
  t.equal(named.length, 1);
  const [next = ''] = /(?<=\nnext )\w+/.exec(named[0] ?? '') ?? [];
  // An attacker removed the lines and the checkpoints of the next run.
  const notes = signed.notes.filter((note) => !note.startsWith(`gw.example/a/${next}\n`));
  const { intact, findings } = signed.verify([first], { notes });
  t.match([intact, findings.map(({ kind, message }) => [kind, message])], [false, [['missing', new RegExp(next)]]]);
  t.equal(signed.verify([first], { notes, since: Date.now() + 1 }).intact, true, 'deleted files need not be there');
});

t.test('an instance cannot say where the log of another instance ended', async (t) => {
  const directory = t.testdir();
  const signed = new SignedLog(directory);
  const { log } = signed.open(3);
  await log.close(30_000);
  const { run, size } = readCheckpoint(signed.notes[0] ?? '', [signed.instance.key]);
  const stranger = NoteSigner.inMemory('gw.example/b');
  const id = uniqueId();
  const start = signCheckpoint(
    {
      ...{ name: 'gw.example/b', run: id, size: 1, root: Buffer.alloc(32), occasion: 'start', at: Date.now() },
      previous: { run, size, hash: Buffer.alloc(32) },
    },
    stranger,
    NoteSigner.inMemory(runKeyName('gw.example/b', id)),
  );
  const keys = [...signed.keys, { key: stranger.key, from: -Infinity, to: Infinity }];
  const { findings } = signed.verify([readFileSync(signed.file)], { notes: [...signed.notes, start], keys });
  t.same(
    findings.map(({ kind }) => kind),
    ['forked', 'missing'],
    'the lines behind the one that it names are not called foreign',
  );
});

t.test('a receipt in a file convicts a registry that lacks the run', async (t) => {
  const signed = new SignedLog(t.testdir());
  await signed.run(3);
  const witness = NoteSigner.inMemory('control.example');
  const notes = signed.notes.map((note) => note + witness.receiptFor(parseNote(note).text, 1));
  const runsOf = (registry: readonly string[]) => {
    const runs = new SignedRuns(signed.keys, -Infinity, new WitnessedList([witness.receiptKey]));
    for (const [file, given] of [
      ['registry', registry],
      ['checkpoints.jsonl', notes],
    ] as const)
      given.forEach((note, index) => {
        runs.take({ file, number: index + 1, bytes: Buffer.from(JSON.stringify({ note })), ended: true });
      });
    runs.link();
    return runs;
  };
  const judge = (registry: readonly string[]) =>
    runsOf(registry)
      .judge([], false)
      .map(({ kind }) => kind);
  t.same(judge(notes), []);
  t.same(judge(notes.slice(0, -1)), ['rewritten'], 'it knows of fewer lines');
  t.same(
    judge([]),
    notes.map(() => 'rewritten'),
    'it knows nothing of the run',
  );
  const place = { file: 'access.log', line: 3 };
  const judgeLine = (registry: readonly string[]) => {
    const runs = runsOf(registry);
    t.equal(runs.compareWitnessed({ note: notes.at(-1) ?? '' }, place), null, 'the registry may still receive it');
    return runs.judge([], false).filter(({ file }) => file === 'access.log');
  };
  t.same(judgeLine(notes), []);
  t.match(
    judgeLine([]),
    [{ ...place, kind: 'rewritten' }],
    'nor does the file hide a receipt that stands in a line of the log',
  );
  t.end();
});
