import { existsSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { setTimeout as wait } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { kindsOf, verify } from '../audit/verify-log.js';
import { SignedRuns } from '../../src/audit/signed-runs.js';
import { WitnessedList } from '../../src/audit/witnessed-list.js';
import { readCheckpoint } from '../../src/evidence/checkpoint.js';
import { leafHash, MerkleTree } from '../../src/evidence/merkle-tree.js';
import { isConsistent } from '../../src/evidence/tree-proof.js';
import { keyText, NoteSigner, parseNote } from '../../src/evidence/signed-note.js';
import { parseSubmission, signListHead } from '../../src/evidence/submission.js';
import { CheckpointFile } from '../../src/telemetry/checkpoints/checkpoint-file.js';
import { CheckpointLog } from '../../src/telemetry/checkpoints/checkpoint-log.js';
import type { KeyChange, ReceiptOptions, WitnessReply } from '../../src/telemetry/checkpoints/receipts.js';
import type { ChainedLog } from '../../src/telemetry/chained-log.js';
import type { ChainedLogOptions } from '../../src/telemetry/line-writer/log-options.js';
import { requestLine } from '../audit/sample-log.js';
import { openLog, until } from './open-log.js';

// These tests run in parallel: they mostly wait, each for its own servers.
t.jobs = 4;

const instance = NoteSigner.inMemory('gw.example/a');
const store = NoteSigner.inMemory('control.example');

/**
 * Stands for the registry's witness of access logs. It signs a receipt for every consistent checkpoint, and can be set
 * to reply differently.
 */
class TestWitness {
  readonly submissions: string[] = [];
  readonly known = new Map<string, { size: number; root: Buffer; text: string; at?: number }>();
  /** Returns the next reply, or an error to reject with; null: the witness replies with a receipt. */
  reply: (() => WitnessReply | Error) | null = null;
  signer = store;
  /** The list head that the witness sends; null: the head of a list that grows. */
  head: string | null = null;

  readonly submit = (submission: string): Promise<WitnessReply> => {
    this.submissions.push(submission);
    const given = this.reply?.();
    if (given instanceof Error) return Promise.reject(given);
    if (given !== undefined) return Promise.resolve(given);
    const { oldSize, proof, note } = parseSubmission(submission);
    const { run, size, root, at } = readCheckpoint(note, [instance.key]);
    const { text } = parseNote(note);
    const before = this.known.get(run) ?? { size: 0, root: Buffer.alloc(32), text: '', at: -Infinity };
    const isRepeated = before.text === text;
    if (!isRepeated && before.size === size && at < (before.at ?? -Infinity))
      return Promise.resolve({
        status: 409,
        problem: `a later checkpoint of the same ${size} lines was already received`,
      });
    if (!isRepeated && (before.size !== oldSize || !isConsistent(before, { size, root }, proof)))
      return Promise.resolve({
        status: 409,
        problem: `the checkpoint does not continue the newest known checkpoint, which covers the first ${before.size} lines of the run`,
      });
    this.known.set(run, { size, root, text, at });
    const receipt = this.signer.receiptFor(text, 1_800_000_000);
    return Promise.resolve({
      status: 200,
      receipt,
      key: keyText(this.signer.receiptKey),
      head: this.head ?? signListHead({ size: this.submissions.length, root: Buffer.alloc(32) }, this.signer),
    });
  };
}

function open(
  t: Test,
  directory: string,
  witness: TestWitness,
  options: Partial<ReceiptOptions> = {},
  file = `${directory}/access.log`,
  ofLog: Partial<ChainedLogOptions> = {},
) {
  const problems: (string | null)[] = [];
  const checkpoints = new CheckpointLog({
    ...{ instance, places: [new CheckpointFile(`${directory}/checkpoints.jsonl`)], everyMilliseconds: 20 },
    receipts: {
      ...{ submit: witness.submit, key: null, registerMilliseconds: 60_000, isRequired: false },
      besideFile: `${directory}/checkpoints.jsonl`,
      close: () => Promise.resolve(),
      onProblem: (problem) => void problems.push(problem),
      ...options,
    },
  });
  const log = openLog(file, { checkpoints, checkpointMilliseconds: 60, ...ofLog });
  t.teardown(() => log.close(0));
  return { checkpoints, log, problems };
}

/** Long enough to sync and sign the last lines on a busy machine. */
const drainMilliseconds = 3_000;

/** Registers, and waits until a problem is reported. On a busy machine, that can be after `register` has returned. */
async function registerInVain({ checkpoints }: Pick<ReturnType<typeof open>, 'checkpoints'>): Promise<void> {
  await checkpoints.register();
  await until(() => checkpoints.status.receipts?.problem !== null);
}

/** The receipt of a signer for a submission. */
function receiptOf(signer: NoteSigner, submission = ''): string {
  return signer.receiptFor(parseNote(parseSubmission(submission).note).text, 1_800_000_000);
}

/** The beginning of each receipt by this signer's key. */
function receiptsOf({ receiptKey: { name, id } }: NoteSigner): string {
  return `\n— ${name} ${id.toString('base64').slice(0, 5)}`;
}

function write(log: ChainedLog, lines: number): void {
  for (let count = 0; count < lines; count += 1) log.write(requestLine({ path: `/v1/payouts/${count}` }));
}

t.test('each submission extends the previous one, also when several were never sent', async (t) => {
  const directory = t.testdir();
  const witness = new TestWitness();
  const { checkpoints, log } = open(t, directory, witness);
  await checkpoints.register();
  t.match(checkpoints.status.receipts, { isRegistered: true, problem: null });
  for (let turn = 0; turn < 10; turn += 1) {
    write(log, turn * 3);
    await wait(15);
  }
  const before = witness.submissions.length;
  witness.reply = () => new Error('the registry does not reply');
  write(log, 5);
  await until(() => witness.submissions.length > before);
  const [unanswered] = witness.submissions.slice(-1);
  write(log, 50);
  await wait(100);
  witness.reply = null;
  await until(() => checkpoints.status.receipts?.problem === null);
  t.equal(witness.submissions.at(before + 1), unanswered, 'the submission without a reply is repeated unchanged');
  await log.close(5_000);
  const [run] = witness.known.values();
  const lines = readFileSync(`${directory}/access.log`, 'utf8').trimEnd().split('\n');
  t.equal(run?.size, lines.length, 'at the end all lines have a receipt');
  t.same(
    readdirSync(directory).filter((name) => name.endsWith('.unanswered')),
    [],
  );
  const minutes = lines.filter((line) => line.includes('"note":"'));
  t.match(
    minutes.at(-1),
    /"note":"gw\.example\/a\/[^"]*— control\.example [^"]*","head":"control\.example\/checkpoints\\n\d+\\n/,
  );
  const list = new WitnessedList([store.receiptKey]);
  const signed = new SignedRuns([{ key: instance.key, from: -Infinity, to: Infinity }], -Infinity, list);
  const given = readFileSync(`${directory}/checkpoints.jsonl`, 'utf8').trimEnd().split('\n');
  given.forEach((line, index) => {
    signed.take({ file: 'checkpoints', number: index + 1, bytes: Buffer.from(line), ended: true });
  });
  signed.link();
  const verdict = verify([readFileSync(`${directory}/access.log`)], { secrets: [], signed });
  t.same(
    kindsOf(verdict).map((kind) => kind.replace(/^\S+ /, '')),
    minutes.map(() => 'rewritten'),
    'only the heads that the witness did not sign are reported',
  );
});

t.test('a submission without a reply is sent by the next process', async (t) => {
  const directory = t.testdir();
  const witness = new TestWitness();
  const first = open(t, directory, witness);
  await first.checkpoints.register();
  witness.reply = () => new Error('the registry does not reply');
  write(first.log, 7);
  await first.log.close(drainMilliseconds);
  const [file = ''] = readdirSync(directory).filter((name) => name.endsWith('.unanswered'));
  t.match(JSON.parse(readFileSync(`${directory}/${file}`, 'utf8')), [/^old 1\n/]);
  const [[firstRun]] = [[...witness.known.keys()]];
  witness.reply = null;
  const second = open(t, directory, witness);
  await second.checkpoints.register();
  await until(() => !existsSync(`${directory}/${file}`));
  t.ok((witness.known.get(firstRun ?? '')?.size ?? 0) >= 8, 'the previous run is submitted to its end');
  t.same([...witness.known.keys()][0], firstRun, 'before the start that names it');
  t.equal(witness.known.size, 2);
  await second.log.close(5_000);
});

/** The names of the files with submissions that the witness has not confirmed. */
function filesIn(directory: string): string[] {
  return readdirSync(directory).filter((name) => /\.unanswered(?:\.live)?$/.test(name));
}

t.test('the unanswered submissions of a live process are left to it', async (t) => {
  const directory = t.testdir();
  const witness = new TestWitness();
  let isAway = false;
  const submit = (submission: string): Promise<WitnessReply> =>
    isAway ? Promise.reject(new Error('the registry does not reply')) : witness.submit(submission);
  const first = open(t, directory, witness, { refreshMilliseconds: 20, submit });
  await first.checkpoints.register();
  const [run = ''] = witness.known.keys();
  isAway = true;
  write(first.log, 7);
  await until(() => filesIn(directory).length === 1);
  const waiting = filesIn(directory);
  const second = open(t, directory, witness, { refreshMilliseconds: 20 }, `${directory}/access.2.log`);
  await second.checkpoints.register();
  await wait(400);
  t.equal(second.checkpoints.status.receipts?.problem, null);
  const third = open(t, directory, witness, { refreshMilliseconds: 20 });
  await third.checkpoints.register();
  t.equal(third.checkpoints.status.receipts?.isRegistered, true, 'a start does not wait for a process that lives');
  t.equal(witness.known.get(run)?.size, 1, 'nobody else submitted for the first process');
  t.same(
    filesIn(directory).filter((name) => waiting.includes(name)),
    waiting,
  );
  isAway = false;
  await until(() => first.checkpoints.status.receipts?.problem === null);
  await Promise.all([first, second, third].map(({ log }) => log.close(5_000)));
  t.equal(witness.known.size, 3, 'the run of the first process went on');
  t.ok((witness.known.get(run)?.size ?? 0) >= 8);
  t.same(filesIn(directory), []);
});

t.test('the unanswered submissions of a killed process are taken once, before the start that names it', async (t) => {
  const directory = t.testdir({ source: {}, target: {} });
  const [source, target] = [`${directory}/source`, `${directory}/target`];
  const witness = new TestWitness();
  witness.reply = () => new Error('the registry does not reply');
  const first = open(t, source, witness, { registerMilliseconds: 50 });
  await first.checkpoints.register();
  write(first.log, 7);
  await until(() => filesIn(source).length === 1);
  await wait(100);
  // The copy has the submissions, but no process touches it.
  const [file = ''] = filesIn(source);
  writeFileSync(`${target}/${file}`, readFileSync(`${source}/${file}`));
  writeFileSync(`${target}/access.log`, readFileSync(`${source}/access.log`));
  await first.log.close(0);
  witness.reply = null;
  const began = performance.now();
  const options = { refreshMilliseconds: 40, registerMilliseconds: 20_000 };
  const logs = ['access.log', 'access.2.log'].map((name) => open(t, target, witness, options, `${target}/${name}`));
  await Promise.all(logs.map(({ checkpoints }) => checkpoints.register()));
  await until(() => witness.known.size === 3);
  t.ok(performance.now() - began >= 5 * 40, 'not before it was untouched for several intervals');
  const starts = witness.submissions.filter((one) => one.includes('\nstart '));
  const names = starts.findLastIndex((one) => one.includes('\nprevious 0'));
  const [, previous = ''] = /\nprevious (\S+) /.exec(starts[names] ?? '') ?? [];
  t.ok([...witness.known.keys()].includes(previous));
  t.ok(
    starts.slice(0, names).some((one) => one.includes(`/${previous}\n`)),
    'before the start that names it',
  );
  await Promise.all(logs.map(({ log }) => log.close(5_000)));
  t.same(filesIn(target), []);
});

t.test('a file of the former release is taken when its log is, or when it has not changed for long', async (t) => {
  const directory = t.testdir();
  const witness = new TestWitness();
  witness.reply = () => new Error('the registry does not reply');
  const first = open(t, directory, witness, { registerMilliseconds: 50 });
  await first.checkpoints.register();
  await first.log.close(drainMilliseconds);
  const [released = ''] = filesIn(directory);
  t.match(released, /\.unanswered$/, 'the former release finds it');
  renameSync(`${directory}/${released}`, `${directory}/${released.replace('.released', '')}`);
  witness.reply = null;
  const log = `${directory}/access.2.log`;
  const second = open(t, directory, witness, { refreshMilliseconds: 5_000 }, log);
  await second.checkpoints.register();
  t.equal(witness.known.size, 1, 'its process may live');
  const third = open(t, directory, witness, { refreshMilliseconds: 5_000 });
  await third.checkpoints.register();
  t.equal(witness.known.size, 3, 'the next process on its log takes it');
  await Promise.all([second.log, third.log].map((one) => one.close(5_000)));
});

t.test('a run that the witness refuses ends, and a new run begins', async (t) => {
  const directory = t.testdir();
  const witness = new TestWitness();
  const { checkpoints, log, problems } = open(t, directory, witness);
  await checkpoints.register();
  const [refused = ''] = witness.known.keys();
  witness.known.set(refused, { size: 900, root: Buffer.alloc(32), text: '' });
  write(log, 3);
  await until(() => witness.known.size === 2);
  t.match(
    problems[0],
    '409: the checkpoint does not continue the newest known checkpoint, which covers the first 900 lines of the run',
  );
  write(log, 3);
  await log.close(5_000);
  t.equal(checkpoints.status.receipts?.problem, null);
  const lines = readFileSync(`${directory}/access.log`, 'utf8').trimEnd().split('\n');
  t.same(new Set(lines.map((line) => line.slice(28, 54))).size, 2, 'two runs in one file');
  const verdict = verify([readFileSync(`${directory}/access.log`)], { secrets: [] });
  t.same(kindsOf(verdict), []);
});

t.test('a clock that is set back while no request arrives ends no run', async (t) => {
  const directory = t.testdir();
  const file = `${directory}/access.log`;
  const witness = new TestWitness();
  let ahead = 0;
  const now = (): number => Date.now() + ahead;
  const ofLog = { now, checkpointMilliseconds: 1_000_000 };
  const { checkpoints, log, problems } = open(t, directory, witness, {}, file, ofLog);
  await checkpoints.register();
  write(log, 3);
  await until(() => [...witness.known.values()][0]?.size === 4);
  ahead = -30_000;
  const before = witness.submissions.length;
  await until(() => witness.submissions.length >= before + 5);
  await log.close(5_000);
  t.same(
    problems.filter((problem) => problem !== null),
    [],
    'no checkpoint is refused',
  );
  t.equal(witness.known.size, 1, 'the same run goes on');
  const added = readFileSync(file, 'utf8').match(/"reason":"interval"/g) ?? [];
  t.equal(added.length, 1, 'with one line that states the new time');
  const [run] = witness.known.values();
  t.ok((run?.at ?? Infinity) < Date.now() - 20_000, 'and further checkpoints');
});

t.test('a refused start is retried, without a new run', async (t) => {
  const directory = t.testdir();
  const witness = new TestWitness();
  witness.reply = () => ({ status: 422, problem: 'not as it should be' });
  const { checkpoints, log } = open(t, directory, witness, { registerMilliseconds: 100, isRequired: true });
  await registerInVain({ checkpoints });
  t.match(checkpoints.status.receipts, { isRegistered: false, isRequired: true, problem: '422: not as it should be' });
  await until(() => witness.submissions.length >= 2);
  t.equal(new Set(witness.submissions).size, 1);
  witness.reply = null;
  await until(() => checkpoints.status.receipts?.isRegistered === true);
  await log.close(5_000);
  t.equal(witness.known.size, 1);
});

t.test('a receipt counts only with a signature of the right key', async (t) => {
  const witness = new TestWitness();
  witness.signer = NoteSigner.inMemory('control.example');
  const directory = t.testdir({ first: {}, second: {} });
  const { checkpoints, log } = open(t, `${directory}/first`, witness, {
    key: store.receiptKey,
    registerMilliseconds: 100,
  });
  await registerInVain({ checkpoints });
  t.match(checkpoints.status.receipts, {
    isRegistered: false,
    problem: 'the receipt is not signed with accessLog.checkpoints.witness.publicKey',
  });
  t.match(
    checkpoints.status.receipts,
    {
      problem:
        'the receipt is not signed with accessLog.checkpoints.witness.publicKey: if the registry has a new key, set that ' +
        'option to the key that "merchant-gateway checkpoints head" prints',
    },
    'a configured key is never replaced, and the problem names the next step',
  );
  await until(() => witness.submissions.length >= 2);
  await wait(50); // until the second receipt has been read
  t.match(checkpoints.status.receipts, {
    isRegistered: false,
    problem: 'the receipt is not signed with accessLog.checkpoints.witness.publicKey',
  });
  t.equal(checkpoints.received, null);

  const damaged = new TestWitness();
  damaged.reply = () => ({ status: 200, receipt: 'no receipt', key: keyText(store.receiptKey) });
  const third = open(t, `${directory}/second`, damaged, { registerMilliseconds: 100 });
  await registerInVain(third);
  t.match(third.checkpoints.status.receipts?.problem, 'the receipt cannot be read');
  await Promise.all([log, third.log].map((one) => one.close(drainMilliseconds)));
});

t.test('a new key of the registry is taken if it signs the receipt and a list that has not shrunk', async (t) => {
  const directory = t.testdir();
  const witness = new TestWitness();
  const changes: KeyChange[] = [];
  const { checkpoints, log, problems } = open(t, directory, witness, { onKeyChange: (change) => changes.push(change) });
  await checkpoints.register();
  await until(() => checkpoints.received !== null);
  t.same(changes, [], 'the first key is no change');
  const size = witness.submissions.length;
  const rotated = NoteSigner.inMemory('control.example');
  const keeps = async (problem: RegExp): Promise<void> => {
    write(log, 1);
    await until(() => problem.test(checkpoints.status.receipts?.problem ?? ''));
    t.match(checkpoints.received?.note, receiptsOf(store), 'what was received stays');
    t.same(changes, []);
  };

  witness.reply = () => ({ status: 200, receipt: store.receiptFor('x', 1), key: keyText(rotated.receiptKey) });
  await keeps(/^the receipt is not signed with the key that the registry sent in the same reply$/);
  witness.reply = () => ({ status: 200, receipt: receiptOf(rotated, witness.submissions.at(-1)) });
  await keeps(/^the receipt cannot be read/);
  witness.reply = () => ({
    ...{ status: 200, receipt: receiptOf(rotated, witness.submissions.at(-1)) },
    key: keyText(rotated.receiptKey),
  });
  await keeps(/^the registry has a new key for receipts, but sent no checkpoint list signed with that key$/);
  witness.reply = null;
  witness.signer = rotated;
  witness.head = signListHead({ size: 10_000, root: Buffer.alloc(32) }, store);
  await keeps(/no signature matches/);
  witness.head = signListHead({ size: size - 1, root: Buffer.alloc(32) }, rotated);
  await keeps(/has shrunk from \d+ to \d+ checkpoints/);

  witness.head = null;
  await until(() => checkpoints.status.receipts?.problem === null);
  t.same(changes, [{ former: keyText(store.receiptKey), current: keyText(rotated.receiptKey) }]);
  t.match(checkpoints.received?.note, receiptsOf(rotated));
  t.equal(witness.known.size, 1, 'the run goes on');

  witness.signer = store;
  write(log, 1);
  await until(() => (checkpoints.status.receipts?.problem ?? '').includes('a former key of the registry'));
  t.match(checkpoints.status.receipts?.problem, 'restart this gateway', 'a replaced key may be a stolen one');
  t.equal(changes.length, 1);
  witness.signer = rotated;
  await until(() => checkpoints.status.receipts?.problem === null);
  await log.close(5_000);
  t.equal(problems.at(-1), null);
});

t.test('a run unknown to the witness is submitted before the start that names it', async (t) => {
  const directory = t.testdir();
  const witness = new TestWitness();
  witness.reply = () => new Error('the registry does not reply');
  const first = open(t, directory, witness, { registerMilliseconds: 50 });
  await first.checkpoints.register();
  write(first.log, 2);
  await first.log.close(drainMilliseconds);
  const unanswered = readdirSync(directory).filter((name) => name.endsWith('.unanswered'));
  t.equal(unanswered.length, 1);
  witness.reply = null;
  const second = open(t, directory, witness);
  await second.checkpoints.register();
  await second.log.close(5_000);
  const [before, after] = [...witness.known.values()];
  t.ok(before !== undefined && before.size >= 3);
  const [, , previous = ''] =
    /\nprevious (\S+) (\d+) /.exec(witness.submissions.find((one) => one.includes('previous 0')) ?? '') ?? [];
  t.equal(Number(previous), before?.size);
  t.not(after, undefined);
  t.same(
    readdirSync(directory).filter((name) => name.endsWith('.unanswered')),
    [],
  );
});

t.test('a receipt counts only with a list head signed by its key', async (t) => {
  const witness = new TestWitness();
  const { checkpoints, log } = open(t, t.testdir(), witness);
  await checkpoints.register();
  const problems: string[] = [];
  for (const head of [
    'x'.repeat(20_000),
    signListHead({ size: 10_000, root: Buffer.alloc(32) }, NoteSigner.inMemory(store.key.name)),
  ]) {
    witness.head = head;
    write(log, 1);
    const before = problems.at(-1) ?? null;
    await until(() => ![null, before].includes(checkpoints.status.receipts?.problem ?? null));
    problems.push(checkpoints.status.receipts?.problem ?? '');
    t.notMatch(checkpoints.received, { head });
  }
  t.match(problems, [/longer than 16384/, /no signature matches/]);
  witness.head = null;
  await until(() => checkpoints.status.receipts?.problem === null);
  await log.close(5_000);
});

t.test('after a restore of the registry receipts count again, and the loss stays a problem', async (t) => {
  const directory = t.testdir();
  const witness = new TestWitness();
  const losses: string[] = [];
  const { checkpoints, log, problems } = open(t, directory, witness, { onLoss: (loss) => losses.push(loss) });
  await checkpoints.register();
  const longer = signListHead({ size: 650, root: Buffer.alloc(32) }, store);
  witness.head = longer;
  write(log, 1);
  await until(() => checkpoints.received?.head === longer);
  // The registry does not know the newest checkpoints of the run, so it refuses the run.
  const [run = ''] = witness.known.keys();
  witness.known.set(run, { size: 900, root: Buffer.alloc(32), text: '' });
  witness.head = signListHead({ size: 501, root: Buffer.alloc(32) }, store);
  write(log, 3);
  await until(() => witness.known.size === 2);
  const [, next = ''] = witness.known.keys();
  write(log, 3);
  await until(() => (witness.known.get(next)?.size ?? 0) > 3);
  const problem = /^the checkpoint list of the registry has shrunk from 650 to 501 .* restore, restart this gateway/;
  await until(() => problem.test(checkpoints.status.receipts?.problem ?? ''));
  const isInLog = (line: string): boolean =>
    line.includes(`"note":"gw.example/a/${next}\\n`) && line.includes(JSON.stringify(longer));
  await until(() => readFileSync(`${directory}/access.log`, 'utf8').split('\n').some(isInLog));
  t.equal(checkpoints.received?.head, longer, 'the head that proves the loss stays');
  await log.close(5_000);
  t.match(checkpoints.status.receipts, { problem, isRegistered: true });
  t.match(losses, [problem]);
  t.equal(losses.length, 1, 'reported once');
  t.equal(problems.at(-1), null, 'no receipt is missing');
});

t.test('the key of a forged receipt is not pinned: genuine receipts count afterwards', async (t) => {
  const witness = new TestWitness();
  const forger = NoteSigner.inMemory('control.example');
  witness.reply = () => ({
    status: 200,
    receipt: store.receiptFor('another text', 1),
    key: keyText(forger.receiptKey),
  });
  const { checkpoints, log } = open(t, t.testdir(), witness, { registerMilliseconds: 100 });
  await registerInVain({ checkpoints });
  t.equal(
    checkpoints.status.receipts?.problem,
    'the receipt is not signed with the key that the registry sent in the same reply',
  );
  witness.reply = null;
  await until(() => checkpoints.status.receipts?.isRegistered === true);
  t.equal(checkpoints.status.receipts?.problem, null);
  await log.close(5_000);
});

t.test('a run whose start was never received is replaced by another run', async (t) => {
  const witness = new TestWitness();
  const { checkpoints, log } = open(t, t.testdir(), witness);
  await checkpoints.register();
  const refused: string[] = [];
  checkpoints.onRefused((run) => void refused.push(run));
  witness.reply = () => ({
    status: 404,
    problem: 'the registry does not know the log run: it has no start checkpoint of the run',
  });
  const [run, tree] = ['0'.repeat(26), new MerkleTree()];
  tree.append(leafHash('0'.repeat(64), 'the first line'));
  checkpoints.add({ run, size: 1, root: tree.root(), occasion: 'periodic', at: Date.now() }, tree.takeGrowth());
  await until(() => refused.includes(run));
  witness.reply = null;
  await until(() => checkpoints.status.receipts?.problem === null);
  await log.close(5_000);
});
