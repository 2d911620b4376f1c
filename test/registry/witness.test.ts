import { type Test } from 'tap';
import { WitnessedList } from '../../src/audit/witnessed-list.js';
import { keyText, NoteSigner, parseNote, receiptTimeOf } from '../../src/evidence/signed-note.js';
import { parseSubmission, readListHead } from '../../src/evidence/submission.js';
import { SilentRuns } from '../../src/registry/checkpoints/findings.js';
import { type WitnessVerdict, Witness } from '../../src/registry/checkpoints/witness.js';
import { openRegistryDatabase } from '../../src/registry/registry-database.js';
import { onEachDatabase } from '../database/each-database.js';
import { ManualTime, until } from './manual-time.js';
import { WitnessedRun } from './witnessed-run.js';

/** The registry's witness of access logs, with a database and a clock that only the test advances. */
async function openWitness(t: Test, url: string) {
  const time = new ManualTime();
  const database = await openRegistryDatabase({ url, generation: 'of the test' });
  t.teardown(() => database.destroy());
  const signer = NoteSigner.inMemory('control.example');
  const witness = new Witness({ database, clock: time, signer });
  const instance = NoteSigner.inMemory('gw.example/a');
  const findings = async (): Promise<string[]> => {
    const rows = await database.selectFrom('checkpoint_findings').selectAll().orderBy('id').execute();
    return rows.map(({ kind }) => kind).toSorted();
  };
  const listed = () => database.selectFrom('checkpoint_list').selectAll().orderBy('seq').execute();
  return { database, findings, instance, listed, signer, time, take: (body: string) => witness.take(body) };
}

/**
 * Watches for silent runs (log files whose checkpoints no longer arrive), with an inbox that can receive messages.
 * @returns the inbox; the function `scan`, which advances the clock by 5 seconds and waits for a scan; and `wall`, with
 *   which a test sets the wall clock
 */
function watchSilence(t: Test, { database, time }: Pick<Awaited<ReturnType<typeof openWitness>>, 'database' | 'time'>) {
  const inbox: { workingSince: number | null } = { workingSince: time.now() };
  const wall = { ahead: 0 };
  const clock = { now: () => time.now() + wall.ahead };
  const silentRuns = new SilentRuns({ database, clock, timers: time, inbox, monotonic: time.monotonic });
  t.teardown(() => silentRuns.stop());
  silentRuns.start();
  const scan = async (): Promise<void> => {
    await until(() => time.untilNext !== null);
    time.advance(5_000);
    await until(() => time.untilNext !== null);
  };
  return { inbox, scan, wall };
}

function noteOf(body: string, { receipt = '' }: WitnessVerdict): string {
  return parseSubmission((JSON.parse(body) as { submission: string }).submission).note + receipt;
}

onEachDatabase(
  'each checkpoint that extends its predecessor gets a receipt; start and end enter the list',
  async (t, url) => {
    const { findings, instance, listed, signer, take, time } = await openWitness(t, url);
    const run = new WitnessedRun(instance).write(1);
    const bodies = [
      run.submit('start', time.now()),
      ...[5, 1, 17, 0].map((lines, index) => run.write(lines).submit('periodic', time.now() + index)),
      run.write(1).submit('end', time.now() + 10),
    ];
    const heads: string[] = [];
    for (const body of bodies) {
      time.advance(10_000);
      const verdict = await take(body);
      t.equal(verdict.status, 200, verdict.problem ?? '');
      t.equal(receiptTimeOf(parseNote(noteOf(body, verdict)), signer.receiptKey), time.now());
      heads.push(verdict.head ?? '');
      t.same(
        await take(body),
        verdict,
        'a checkpoint whose receipt was lost gets the same receipt when it is submitted again',
      );
    }
    t.same(await findings(), []);
    const rows = await listed();
    t.same(
      rows.map(({ note }) => note.split('\n')[3]?.split(' ')[0]),
      ['start', 'end'],
    );
    const list = new WitnessedList([signer.receiptKey]);
    for (const { received_at, note } of rows) list.take(received_at, note);
    t.same(
      heads.map((head) => list.unlike(head)),
      heads.map(() => null),
      'each signed head matches the list',
    );
  },
);

onEachDatabase('after a rotation of its key the registry signs a stored checkpoint anew', async (t, url) => {
  const { database, findings, instance, signer, take, time } = await openWitness(t, url);
  const run = new WitnessedRun(instance).write(1);
  const body = run.submit('start', time.now());
  const first = await take(body);
  const receivedAt = time.now();
  time.advance(5_000);
  const rotated = NoteSigner.inMemory(signer.key.name);
  const witness = new Witness({ database, clock: time, signer: rotated });
  const verdict = await witness.take(body);
  t.match(verdict, { status: 200, key: keyText(rotated.receiptKey) });
  t.equal(receiptTimeOf(parseNote(noteOf(body, verdict)), rotated.receiptKey), receivedAt, 'its first time of receipt');
  t.equal(readListHead(verdict.head ?? '', rotated.key).size, 1);
  t.same(await witness.take(body), verdict);
  t.equal((await take(body)).receipt, first.receipt, 'a replica with the former key still signs with that key');
  t.same(await findings(), []);
});

onEachDatabase('the list also gets a checkpoint every ten minutes', async (t, url) => {
  const { instance, listed, take, time } = await openWitness(t, url);
  const run = new WitnessedRun(instance).write(1);
  await take(run.submit('start', time.now()));
  for (let count = 0; count < 130; count += 1) {
    time.advance(10_000);
    t.equal((await take(run.write(1).submit('periodic', time.now()))).status, 200);
  }
  t.equal((await listed()).length, 3);
});

onEachDatabase('a submission that does not extend its run is rejected and reported once', async (t, url) => {
  const { findings, instance, signer, take, time } = await openWitness(t, url);
  const run = new WitnessedRun(instance).write(1);
  for (const body of [run.submit('start', time.now()), run.write(9).submit('periodic', time.now())]) await take(body);
  const unsent = Object.assign(new WitnessedRun(instance), { id: run.id, signer: run.signer })
    .write(5)
    .submit('periodic', time.now());
  const other = new WitnessedRun(instance).write(30);
  const forged = other.tree.root();
  const replay = new WitnessedRun(instance).write(1);
  const attempts: [string, string, number, string | null][] = [
    ['earlier lines under a checkpoint that was never accepted', unsent, 409, 'replay'],
    [
      'the same lines with an earlier time',
      run.submit('periodic', time.now() - 1, { oldSize: 10, proof: [] }),
      409,
      'replay',
    ],
    [
      'too many additional signatures',
      run
        .submit('periodic', time.now() + 1, { oldSize: 10, proof: [] })
        .replace(/"}$/, `${'— x AAAAAAA=\\n'.repeat(900)}"}`),
      422,
      null,
    ],
    ['a different root for the same run', run.write(5).submit('periodic', time.now(), { root: forged }), 422, 'fork'],
    ['a proof from another size', run.submit('periodic', time.now(), { oldSize: 9, proof: [] }), 409, 'fork'],
    ['no consistency proof', run.submit('periodic', time.now(), { oldSize: 10, proof: [] }), 422, null],
    [
      'another key of the run',
      run.submit('periodic', time.now(), { signer: NoteSigner.inMemory(run.signer.key.name) }),
      422,
      'fork',
    ],
    ['a run without a witnessed start', replay.submit('periodic', time.now()), 404, 'unknown'],
    ['a start that extends an earlier size', replay.submit('start', time.now(), { oldSize: 1, proof: [] }), 409, null],
    [
      'another instance key',
      new WitnessedRun(NoteSigner.inMemory('gw.example/a')).write(1).submit('start', time.now()),
      403,
      'key',
    ],
    [
      'no valid signature of the instance',
      run.submit('periodic', time.now(), { instance: signer }).replaceAll(signer.key.name, 'gw.example/a'),
      422,
      null,
    ],
    ['no submission field', '{}', 422, null],
    ['no JSON', 'old 0', 422, null],
  ];
  let expected: string[] = [];
  for (const [what, body, status, kind] of attempts) {
    for (let twice = 0; twice < 2; twice += 1) {
      const verdict = await take(body);
      t.equal(verdict.status, status, `${what}: ${verdict.problem ?? ''}`);
      t.equal(verdict.receipt, undefined);
      time.advance(1_000);
    }
    expected = kind === null ? expected : [...expected, kind];
    t.same(await findings(), expected.toSorted(), what);
  }
  t.match(await take(run.submit('end', time.now(), { oldSize: 10, proof: [] })), { status: 422 });
});

onEachDatabase('a checkpoint that was accepted before gets its receipt again, without a finding', async (t, url) => {
  const { database, findings, instance, listed, signer, take, time } = await openWitness(t, url);
  const run = new WitnessedRun(instance).write(1);
  const bodies = [
    run.submit('start', time.now()),
    ...[7, 0, 3].map((lines, index) => run.write(lines).submit('periodic', time.now() + index)),
    run.write(1).submit('end', time.now() + 10),
  ];
  const verdicts: WitnessVerdict[] = [];
  for (const body of bodies) {
    time.advance(10_000);
    verdicts.push(await take(body));
  }
  t.same(
    verdicts.map(({ status }) => status),
    [200, 200, 200, 200, 200],
  );
  const state = async () => [await database.selectFrom('runs').selectAll().execute(), await listed()];
  const before = await state();
  time.advance(3_600_000);
  for (const [index, body] of bodies.entries()) {
    const { receipt } = verdicts[index] ?? {};
    t.match(await take(body), { status: 200, receipt, head: verdicts.at(-1)?.head }, `checkpoint ${index}`);
  }
  const rotated = new Witness({ database, clock: time, signer: NoteSigner.inMemory(signer.key.name) });
  t.match(await rotated.take(bodies[1] ?? ''), { status: 200, key: /control/ }, 'also after a rotation of the key');
  t.same(await findings(), []);
  t.same(await state(), before, 'the run does not look alive again');
});

onEachDatabase('that an earlier checkpoint was accepted is known for a week', async (t, url) => {
  const { database, findings, instance, take, time } = await openWitness(t, url);
  const run = new WitnessedRun(instance).write(1);
  const first = run.submit('start', time.now());
  await take(first);
  for (let days = 0; days < 8; days += 1) {
    t.match(await take(run.write(1).submit('periodic', time.now())), { status: 200 });
    t.match(await take(first), { status: 200 });
    time.advance(86_400_000);
  }
  await take(run.write(1).submit('periodic', time.now()));
  t.match(await take(first), { status: 409 });
  t.same(await findings(), ['replay']);
  t.equal((await database.selectFrom('earlier_checkpoints').select('digest').execute()).length, 7);
});

onEachDatabase('nothing can be appended to a run that has ended', async (t, url) => {
  const { findings, instance, take, time } = await openWitness(t, url);
  const run = new WitnessedRun(instance).write(1);
  await take(run.submit('start', time.now()));
  await take(run.write(3).submit('end', time.now()));
  const verdict = await take(run.write(2).submit('periodic', time.now()));
  t.match(verdict, { status: 409, problem: 'the run has already ended, with line 4' });
  t.same(await findings(), ['fork']);
});

onEachDatabase('a start over a log other than the signed one is reported and still gets a receipt', async (t, url) => {
  const { findings, instance, take, time } = await openWitness(t, url);
  const first = new WitnessedRun(instance).write(1);
  await take(first.submit('start', time.now(), { previous: new WitnessedRun(instance).write(4).end }));
  t.same(await findings(), [], 'the log before the very first checkpoint is unknown');
  await take(first.write(31).submit('periodic', time.now()));
  const next = (previous: { run: string; size: number; hash: Buffer }) => {
    const run = new WitnessedRun(instance).write(1);
    return take(run.submit('start', time.now(), { previous }));
  };
  t.equal((await next({ ...first.end, size: 40 })).status, 200);
  t.same(await findings(), [], 'lines after the newest checkpoint are expected');
  t.equal((await next({ ...first.end, size: 27 })).status, 200);
  t.same(await findings(), ['cut', 'fork'], 'a truncation, and a second log that continues the first');
  t.equal((await next(new WitnessedRun(instance).write(4).end)).status, 200);
  t.same(await findings(), ['cut', 'fork', 'previous']);
});

onEachDatabase('a start on the log of a run that goes on is no fork', async (t, url) => {
  const { findings, instance, take, time } = await openWitness(t, url);
  const startAfter = async (previous: WitnessedRun): Promise<void> => {
    time.advance(1_000);
    const run = new WitnessedRun(instance).write(1);
    t.match(await take(run.submit('start', time.now(), { previous: previous.end })), { status: 200 });
    time.advance(1_000);
  };
  const started = async (): Promise<WitnessedRun> => {
    const run = new WitnessedRun(instance).write(1);
    await take(run.submit('start', time.now()));
    return run;
  };
  const first = await started();
  await startAfter(first);
  await take(first.write(3).submit('periodic', time.now()));
  await startAfter(first);
  t.same(await findings(), [], 'the run signed further lines after the first start');
  await startAfter(first);
  t.same(await findings(), ['fork'], 'two runs continue its last line');

  const idle = await started();
  await startAfter(idle);
  await take(idle.submit('periodic', time.now()));
  await startAfter(idle);
  t.same(await findings(), ['fork', 'fork'], 'it signed again, but no further line');

  const late = await started();
  const { end } = late;
  const body = late.write(3).submit('periodic', time.now());
  time.advance(1_000);
  const other = new WitnessedRun(instance).write(1);
  await take(other.submit('start', time.now(), { previous: end }));
  t.match(await take(body), { status: 200 });
  await startAfter(late);
  t.same(
    await findings(),
    ['fork', 'fork', 'fork'],
    'its further lines were signed before the start, but received later',
  );
});

// docs/audit-log.md describes this: workers and replicas that share a name begin to sign checkpoints at the same time.
onEachDatabase('of runs that continue files without checkpoints, each but the first is reported', async (t, url) => {
  const { findings, instance, take, time } = await openWitness(t, url);
  for (const expected of [[], ['previous'], ['previous', 'previous']]) {
    const unsigned = new WitnessedRun(instance).write(4);
    const run = new WitnessedRun(instance).write(1);
    t.match(await take(run.submit('start', time.now(), { previous: unsigned.end })), { status: 200 });
    t.same(await findings(), expected);
  }
});

onEachDatabase('contradictory times are reported', async (t, url) => {
  const { findings, instance, take, time } = await openWitness(t, url);
  const run = new WitnessedRun(instance).write(1);
  await take(run.submit('start', time.now()));
  time.advance(3_600_000);
  await take(run.write(1).submit('periodic', time.now() - 3_500_000));
  t.same(await findings(), [], 'a checkpoint delayed by an hour while the registry was unavailable is accepted');
  await take(run.write(1).submit('periodic', time.now() - 3_400_000));
  t.same(await findings(), [], 'the next delayed checkpoint is accepted too');
  await take(run.write(1).submit('periodic', time.now() - 3_400_001));
  t.same(await findings(), ['clock'], 'a checkpoint dated before its predecessor');
  await take(run.write(1).submit('periodic', time.now() + 61_000));
  t.same(await findings(), ['clock', 'clock'], 'a checkpoint dated in the future');
  for (let count = 0; count < 2; count += 1) {
    time.advance(10_000);
    await take(run.write(1).submit('periodic', time.now() + 61_000));
  }
  t.same(await findings(), ['clock', 'clock'], 'a clock that stays ahead is reported once');
  time.advance(100_000);
  await take(run.write(1).submit('periodic', time.now()));
  await take(run.write(1).submit('periodic', time.now() + 61_000));
  t.same(await findings(), ['clock', 'clock', 'clock'], 'a clock that was correct in between is reported again');
});

// Regression: a registry did not report a future time again if the run's previous checkpoint was dated later than its
// receipt. But another registry with another clock could have stored the time of this receipt. So the same run was
// reported again and again.
onEachDatabase('two registries with different clocks report a run once', async (t, url) => {
  const { database, findings, instance, signer, take, time } = await openWitness(t, url);
  const behind = new Witness({ database, clock: { now: () => time.now() - 90_000 }, signer });
  const run = new WitnessedRun(instance).write(1);
  await take(run.submit('start', time.now()));
  time.advance(100_000); // so that both clocks are past the time from which the instance key is valid
  for (let count = 0; count < 3; count += 1) {
    for (const takeNext of [(body: string) => behind.take(body), take]) {
      time.advance(10_000);
      t.match(await takeNext(run.write(1).submit('periodic', time.now())), { status: 200 });
    }
  }
  t.same(await findings(), ['clock']);
  time.advance(7_200_000);
  await take(run.write(1).submit('periodic', time.now()));
  await behind.take(run.write(1).submit('periodic', time.now()));
  t.same(await findings(), ['clock', 'clock'], 'a registry that saw no checkpoint for an hour reports it again');
});

onEachDatabase('a start dated before the run that it continues is reported', async (t, url) => {
  const { database, findings, instance, take, time } = await openWitness(t, url);
  const startAfter = async (late: number): Promise<WitnessedRun> => {
    const previous = new WitnessedRun(instance).write(1);
    await take(previous.submit('start', time.now() - 7_200_000));
    await take(previous.write(1).submit('end', time.now()));
    const next = new WitnessedRun(instance).write(1);
    t.match(await take(next.submit('start', time.now() + late, { previous: previous.end })), { status: 200 });
    return next;
  };
  await startAfter(0);
  await startAfter(-60_000);
  t.same(await findings(), [], 'clocks may differ by a minute');
  const early = await startAfter(-60_001);
  t.same(await findings(), ['clock'], 'the clock was set back between two processes');
  const [row] = await database.selectFrom('checkpoint_findings').selectAll().execute();
  t.match(row?.origin, early.id);
  await take(early.write(1).submit('end', time.now()));
  const later = new WitnessedRun(instance).write(1);
  await take(later.submit('start', time.now(), { previous: early.end }));
  t.same(await findings(), ['clock'], 'the run after it is in order');
});

onEachDatabase('a silent run is reported once, but not a run that ended or was continued', async (t, url) => {
  const { database, findings, instance, take, time } = await openWitness(t, url);
  const [silent, ended, followed, living] = Array.from({ length: 4 }, () => new WitnessedRun(instance).write(1));
  if (silent === undefined || ended === undefined || followed === undefined || living === undefined) throw new Error();
  for (const run of [silent, ended, followed, living])
    await take(run.submit('start', time.now(), { everySeconds: 10 }));
  await take(ended.submit('end', time.now()));
  const follower = new WitnessedRun(instance).write(1);
  await take(follower.submit('start', time.now(), { previous: followed.end }));
  const { inbox, scan } = watchSilence(t, { database, time });
  for (let seconds = 5; seconds <= 30; seconds += 5) {
    for (const run of [living, follower]) await take(run.submit('periodic', time.now()));
    await scan();
  }
  t.same(await findings(), [], 'not within three intervals');
  inbox.workingSince = null;
  for (let count = 0; count < 5; count += 1) await scan();
  t.same(await findings(), [], 'not while Redis is unavailable and nothing arrives');
  inbox.workingSince = time.now();
  for (let seconds = 5; seconds <= 30; seconds += 5) {
    for (const run of [living, follower]) await take(run.submit('periodic', time.now()));
    await scan();
  }
  t.same(await findings(), [], 'not within three intervals after the outage');
  for (const run of [living, follower]) await take(run.submit('periodic', time.now()));
  await scan();
  await scan();
  t.same(await findings(), ['silent']);
  const [row] = await database.selectFrom('checkpoint_findings').selectAll().execute();
  t.match(row?.origin, silent.id);
  t.match(row?.message, 'and no checkpoint marks the end of the run: check that its gateway runs.');
  t.equal((await take(silent.submit('periodic', time.now()))).status, 200, 'the run may only have been disconnected');
});

// Regression: the registry compared wall clocks. After its clock was set, or after it was paused, it reported running
// gateways as silent.
onEachDatabase('neither a clock that is set nor a pause of the registry makes a run silent', async (t, url) => {
  const { database, findings, instance, take, time } = await openWitness(t, url);
  const run = new WitnessedRun(instance).write(1);
  await take(run.submit('start', time.now()));
  const { scan, wall } = watchSilence(t, { database, time });
  await scan();
  wall.ahead = 3_600_000;
  await scan();
  t.same(await findings(), [], 'the clock was set forward, or another registry with another clock got the checkpoint');
  await take(run.write(1).submit('periodic', time.now()));
  await scan();
  time.advance(60_000); // the next scan is 60 s late, and nothing was read meanwhile
  await scan();
  t.same(await findings(), [], 'the registry was paused');
  await take(run.write(1).submit('periodic', time.now()));
  wall.ahead = -3_600_000;
  for (let seconds = 0; seconds <= 40; seconds += 5) await scan();
  t.same(await findings(), ['silent'], 'a clock that was set back does not hide a silent run');
});

onEachDatabase('a run that vanished before the registry started is silent after three intervals', async (t, url) => {
  const { database, findings, instance, take, time } = await openWitness(t, url);
  await take(new WitnessedRun(instance).write(1).submit('start', time.now()));
  time.advance(3_600_000);
  const { scan } = watchSilence(t, { database, time });
  for (let seconds = 5; seconds <= 30; seconds += 5) await scan();
  t.same(await findings(), []);
  await scan();
  await scan();
  t.same(await findings(), ['silent']);
});

onEachDatabase(
  'a rotated file whose next run never arrives is reported, but not one whose next run arrived',
  async (t, url) => {
    const { database, findings, instance, take, time } = await openWitness(t, url);
    const [rotated, cut] = [new WitnessedRun(instance).write(1), new WitnessedRun(instance).write(1)];
    for (const run of [rotated, cut]) await take(run.submit('start', time.now()));
    const [next, never] = [new WitnessedRun(instance).write(1), new WitnessedRun(instance)];
    await take(rotated.submit('end', time.now(), { next: next.id }));
    await take(cut.submit('end', time.now(), { next: never.id }));
    await take(next.submit('start', time.now(), { previous: rotated.end }));
    await take(next.submit('end', time.now()));
    const { scan } = watchSilence(t, { database, time });
    for (let seconds = 0; seconds <= 40; seconds += 5) await scan();
    t.same(await findings(), ['silent']);
    const [row] = await database.selectFrom('checkpoint_findings').selectAll().execute();
    t.match(row, { origin: new RegExp(cut.id), message: new RegExp(never.id) });
  },
);

onEachDatabase('a valid instance key with a forged run key is reported', async (t, url) => {
  const { findings, instance, take, time } = await openWitness(t, url);
  const run = new WitnessedRun(instance).write(1);
  await take(run.submit('start', time.now()));
  // A signature under the right name, by a key that is not the run's.
  const body = run.write(1).submit('periodic', time.now());
  const { submission, ...rest } = JSON.parse(body) as { submission: string };
  const lines = submission.split('\n');
  const forged = lines.map((line, index) =>
    index === lines.length - 2 ? `${line.slice(0, -8)}AAAA${line.slice(-4)}` : line,
  );
  t.match(await take(JSON.stringify({ ...rest, submission: forged.join('\n') })), { status: 422 });
  t.same(await findings(), ['key'], 'the instance key may be stolen');
  const stranger = NoteSigner.inMemory('stranger');
  const other = new WitnessedRun(stranger).write(1);
  const bodyOfOther = other.submit('start', time.now(), {
    signer: NoteSigner.inMemory(`stranger/${new WitnessedRun(stranger).id}`),
  });
  t.match(await take(bodyOfOther), { status: 422 });
  t.same(await findings(), ['key'], 'an unpinned key causes no finding');
});

onEachDatabase('the list is append-only', async (t, url) => {
  const { database, instance, listed, signer, take, time } = await openWitness(t, url);
  const run = new WitnessedRun(instance).write(1);
  await take(run.submit('start', time.now()));
  const { head = '' } = await take(run.write(1).submit('end', time.now()));
  const rows = await listed();
  await t.rejects(database.updateTable('checkpoint_list').set({ note: '' }).execute(), /only be added/);
  await t.rejects(database.deleteFrom('checkpoint_list').where('seq', '=', 1).execute(), /only be added/);
  t.same(await listed(), rows);

  const unlike = (some: typeof rows, signed = head): string | null => {
    const list = new WitnessedList([signer.receiptKey]);
    for (const { received_at, note } of some) list.take(received_at, note);
    return list.unlike(signed);
  };
  t.equal(unlike(rows), null);
  t.match(unlike(rows.slice(0, 1)), 'signed a list of 2 checkpoints, but its list now has only 1');
  t.match(unlike(rows.toReversed()), 'differs from the list that the registry signed earlier');
  t.match(
    unlike(rows.map((row) => ({ ...row, received_at: row.received_at + 1 }))),
    'differs from the list that the registry signed earlier',
  );
  t.match(unlike(rows, head.replace('\n2\n', '\n1\n')), "the signed head of the registry's checkpoint list is invalid");
  const other = new WitnessedList([NoteSigner.inMemory('control.example').receiptKey]);
  t.equal(other.unlike(head), null);
  t.match(other.notes, [/^1 signed head .* add the registry's former public key with --witness-key\./]);
});

onEachDatabase('of concurrent submissions for one run exactly one is accepted', async (t, url) => {
  const { database, instance, take, time } = await openWitness(t, url);
  const run = new WitnessedRun(instance).write(1);
  await take(run.submit('start', time.now()));
  const growths = Array.from({ length: 10 }, (_, index) => {
    const copy = Object.assign(new WitnessedRun(instance), { id: run.id, signer: run.signer }).write(1);
    copy.submit('start', time.now());
    return copy.write(index + 1).submit('periodic', time.now());
  });
  const verdicts = await Promise.all(growths.map((body) => take(body).catch(() => ({ status: 503 }))));
  const sizes = await database.selectFrom('runs').select('size').execute();
  t.equal(sizes.length, 1);
  t.ok(verdicts.filter(({ status }) => status === 200).length >= 1);
  t.same(
    verdicts.filter(({ status }) => ![200, 409, 422].includes(status)),
    [],
  );
});
