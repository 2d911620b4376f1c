import { mkdirSync, writeFileSync } from 'node:fs';
import t from 'tap';
import type { Test } from 'tap';
import type { Verdict } from '../../src/audit/chain-check.js';
import type { PinnedKey } from '../../src/audit/pinned-keys.js';
import { SignedRuns } from '../../src/audit/signed-runs.js';
import { WitnessedList } from '../../src/audit/witnessed-list.js';
import { type Checkpoint, readCheckpoint, runKeyName, signCheckpoint } from '../../src/evidence/checkpoint.js';
import { keyText, NoteSigner, parseNote } from '../../src/evidence/signed-note.js';
import { submissionText } from '../../src/evidence/submission.js';
import { Witness } from '../../src/registry/checkpoints/witness.js';
import { openRegistryDatabase } from '../../src/registry/registry-database.js';
import { SignedLog } from '../audit/signed-log.js';
import { kindsOf, linesOf, verify } from '../audit/verify-log.js';
import { fileOf, rehashed, rootOf } from './forged-lines.js';

/** The logs of gateways with these names, each with a separate directory and instance key. */
function logsOf(t: Test, ...names: readonly string[]): SignedLog[] {
  const directory = t.testdir();
  return names.map((name, index) => {
    mkdirSync(`${directory}/${index}`);
    return Object.assign(new SignedLog(`${directory}/${index}`), { instance: NoteSigner.inMemory(name) });
  });
}

/** The checkpoints of several logs, and the public keys of their instances. */
function givenOf(logs: readonly SignedLog[]) {
  return { notes: logs.flatMap(({ notes }) => notes), keys: logs.flatMap(({ keys }) => keys) };
}

/** A registry as the witness of access logs: it signs receipts for their checkpoints. */
async function openRegistry(t: Test) {
  const database = await openRegistryDatabase({ url: 'sqlite::memory:', generation: 'of the test' });
  t.teardown(() => database.destroy());
  const signer = NoteSigner.inMemory('control.example');
  const witness = new Witness({ database, clock: { now: Date.now }, signer });
  const submitStart = (note: string, instance: NoteSigner) =>
    witness.take(
      JSON.stringify({
        ...{ key: keyText(instance.key), everySeconds: 10 },
        submission: submissionText({ oldSize: 0, proof: [], note }),
      }),
    );
  const listed = () => database.selectFrom('checkpoint_list').selectAll().orderBy('seq').execute();
  const findings = () => database.selectFrom('checkpoint_findings').selectAll().orderBy('id').execute();
  return { findings, listed, signer, submitStart };
}

/** Verifies files of a log against a list of the registry, and against checkpoints that are stored elsewhere. */
function witnessedVerdict(
  files: readonly Buffer[],
  rows: readonly { readonly received_at: number; readonly note: string }[],
  given: { readonly signer: NoteSigner; readonly keys: readonly PinnedKey[]; readonly elsewhere?: readonly string[] },
): Verdict {
  const list = new WitnessedList([given.signer.receiptKey]);
  for (const { received_at, note } of rows) list.take(received_at, note);
  const signed = new SignedRuns(given.keys, -Infinity, list);
  const sources = { registry: rows.map(({ note }) => note), elsewhere: given.elsewhere ?? [] };
  for (const [file, notes] of Object.entries(sources))
    notes.forEach((note, index) => {
      signed.take({ file, number: index + 1, bytes: Buffer.from(JSON.stringify({ note })), ended: true });
    });
  signed.link();
  return verify(files, { secrets: [], signed });
}

t.test('unsigned tail edited after a kill: not found, and reported as under no signature', async (t) => {
  const [signed] = logsOf(t, 'gw.example/a');
  if (signed === undefined) throw new Error('there is no log');
  await signed.run(6);
  // A killed process signs no end.
  const [start = ''] = signed.notes;
  const killed = linesOf(signed.read()).slice(0, 6);
  const verdictOf = (lines: readonly string[]) => signed.verify([fileOf(lines)], { notes: [start] });
  const untouched = verdictOf(killed);
  t.same(kindsOf(untouched), ['1:6 truncated'], 'the run has no end');
  t.match(untouched.proofs, [{ signedTo: 1, unsigned: 5 }]);
  const edited = rehashed(killed.with(3, (killed[3] ?? '').replace('/v1/payouts/2', '/v1/payouts/9')));
  t.notSame(edited, killed);
  const { findings, notes, proofs } = untouched;
  const resultOfEdited = verdictOf(edited);
  t.same(resultOfEdited.findings, findings, 'an edited tail has the findings of the genuine one');
  t.same(
    [resultOfEdited.notes, resultOfEdited.proofs],
    [notes, proofs],
    'an edited tail has the verdict of the genuine one',
  );
  const cut = verdictOf(killed.slice(0, 4));
  t.same(kindsOf(cut), ['1:4 truncated'], 'a cut tail has the same finding');
  t.match(cut.proofs, [{ signedTo: 1, unsigned: 3 }]);
});

t.test('memory snapshot: of two copies that continue one run, two different versions are signed', async (t) => {
  const [signed] = logsOf(t, 'gw.example/a');
  if (signed === undefined) throw new Error('there is no log');
  await signed.run(6);
  const { run, name } = readCheckpoint(signed.notes[0] ?? '', [signed.instance.key]);
  // Both copies have the run key, which was in the copied memory.
  const runSigner = NoteSigner.inMemory(runKeyName(name, run));
  const sign = (lines: readonly string[], occasion: Checkpoint['occasion']): string => {
    const start = occasion === 'start' ? { previous: null } : {};
    const state = { name, run, size: lines.length, root: rootOf(lines) };
    return signCheckpoint({ ...state, occasion, at: Date.now(), ...start }, signed.instance, runSigner);
  };
  const one = linesOf(signed.read());
  const other = rehashed(one.with(5, (one[5] ?? '').replace('/v1/payouts/4', '/v1/payouts/7')));
  t.same(other.slice(0, 5), one.slice(0, 5), 'the lines before the snapshot are the same');
  const before = [sign(one.slice(0, 1), 'start'), sign(one.slice(0, 5), 'periodic')];
  const verdictOf = (lines: readonly string[], ...later: readonly string[]) =>
    signed.verify([fileOf(lines)], { notes: [...before, ...later] });
  t.same(kindsOf(verdictOf(one, sign(one, 'end'))), [], 'one copy alone is intact');
  t.same(kindsOf(verdictOf(other, sign(other, 'end'))), [], 'so is the other');
  const both = verdictOf(one, sign(one, 'end'), sign(other, 'end'));
  t.same(kindsOf(both), ['checkpoints:4 forked']);
  t.match(
    both.findings[0]?.message,
    `the signed checkpoints contradict each other about the 8 lines 1 to 8 of the log run ${run}`,
  );
  t.same(kindsOf(verdictOf(other, sign(one, 'end'), sign(other, 'end'))), ['1:8 edited', 'checkpoints:4 forked']);
  const unequal = verdictOf(one, sign(one, 'end'), sign(other.slice(0, 7), 'periodic'));
  t.same(kindsOf(unequal), ['1:7 edited'], 'of different sizes: the file differs from one of them');
});

t.test('two instances with one key: their runs are separate, and both are required', async (t) => {
  const [one, other] = logsOf(t, 'gw.example/a', 'gw.example/a');
  if (one === undefined || other === undefined) throw new Error('there are no logs');
  Object.assign(other, { instance: one.instance });
  for (const log of [one, other]) await log.run(3);
  const given = { ...givenOf([one, other]), keys: one.keys };
  const verdict = one.verify([one.read(), other.read()], given);
  t.same(kindsOf(verdict), [], 'two runs that begin an empty log are no fork');
  t.match(verdict.proofs, [
    { name: 'gw.example/a', signedTo: 5, unsigned: 0 },
    { name: 'gw.example/a', signedTo: 5, unsigned: 0 },
  ]);
  t.same(kindsOf(one.verify([one.read()], given)), ['checkpoints:4 missing']);
  t.same(kindsOf(one.verify([other.read()], given)), ['checkpoints:2 missing']);
  const { findings, submitStart } = await openRegistry(t);
  for (const { notes } of [one, other])
    t.match(await submitStart(notes[0] ?? '', one.instance), { status: 200 }, 'the registry accepts both');
  t.same(await findings(), []);
});

t.test('files of two instances swapped: both verify, and the next start names a run of the other', async (t) => {
  const logs = logsOf(t, 'gw.example/a', 'gw.example/b');
  const [one, other] = logs;
  if (one === undefined || other === undefined) throw new Error('there are no logs');
  const { findings, submitStart } = await openRegistry(t);
  for (const log of logs) {
    await log.run(3);
    t.match(await submitStart(log.notes[0] ?? '', log.instance), { status: 200 });
  }
  const [ofOne, ofOther] = [one.read(), other.read()];
  writeFileSync(one.file, ofOther);
  writeFileSync(other.file, ofOne);
  t.same(kindsOf(one.verify([one.read(), other.read()], givenOf(logs))), [], 'the name of a file is not signed');
  t.same(
    kindsOf(one.verify([one.read()])),
    ['1:5 unsigned', 'checkpoints:2 missing'],
    'with the key of one instance its run is missing',
  );
  t.same(await findings(), []);
  for (const log of logs) {
    await log.run(1);
    const start = log.notes[2] ?? '';
    t.match(await submitStart(start, log.instance), { status: 200 }, 'a finding refuses no receipt');
  }
  t.match(await findings(), [
    {
      kind: 'previous',
      origin: /^gw\.example\/a\//,
      message: /^the log run continues the run \w{26}, but no checkpoint of that run was received$/,
    },
    {
      kind: 'previous',
      origin: /^gw\.example\/b\//,
      message: /^the log run continues the run \w{26}, but no checkpoint of that run was received$/,
    },
  ]);
  const verdict = one.verify([one.read(), other.read()], givenOf(logs));
  t.same(kindsOf(verdict), ['checkpoints:3 forked', 'checkpoints:7 forked'], 'from then on the verifier finds it too');
  t.match(
    verdict.findings[0]?.message,
    /of gw\.example\/a claims to follow the run \w{26}, which belongs to another gateway, gw\.example\/b$/,
  );
});

t.test("last rows of the registry's list deleted: not found, unless a line of a log has a later head", async (t) => {
  const [one, other] = logsOf(t, 'gw.example/a', 'gw.example/b');
  if (one === undefined || other === undefined) throw new Error('there are no logs');
  const { listed, signer, submitStart } = await openRegistry(t);
  await one.run(0);
  await other.run(2);
  const verdictOf = async (rowsLeft: number, files: readonly Buffer[]) =>
    witnessedVerdict(files, (await listed()).slice(0, rowsLeft), { signer, keys: [...one.keys, ...other.keys] });
  await submitStart(one.notes[0] ?? '', one.instance);
  const [note = ''] = other.notes;
  const { head } = await submitStart(note, other.instance);
  t.match(head, '/checkpoints');
  t.equal((await listed()).length, 2);
  t.same(kindsOf(await verdictOf(2, [one.read(), other.read()])), []);
  t.same(kindsOf(await verdictOf(2, [one.read()])), ['registry:2 missing']);
  t.same(kindsOf(await verdictOf(1, [one.read()])), [], 'neither the rows nor the lines are missed');

  const [start = '', end = ''] = linesOf(one.read());
  // A head is the registry's signed statement about its list of checkpoints. Each minute the gateway writes the newest
  // head into a line.
  const withHead = start
    .replace('"reason":"start"', '"reason":"interval"')
    .replace('"predecessor":null', JSON.stringify({ head }).slice(1, -1));
  const headed = fileOf(rehashed([start, withHead, end]));
  const found = await verdictOf(1, [headed]);
  t.same(kindsOf(found), ['1:2 rewritten']);
  t.match(found.findings[0]?.message, 'the registry signed a list of 2 checkpoints, but its list now has only 1');
  t.same(kindsOf(await verdictOf(2, [headed, other.read()])), [], 'with all rows the head matches');
});

t.test('unregistered run deleted: not found, because no checkpoint of it is anywhere', async (t) => {
  const [signed] = logsOf(t, 'gw.example/a');
  if (signed === undefined) throw new Error('there is no log');
  await signed.run(3);
  const [registered, file] = [signed.notes, signed.read()];
  await signed.run(4);
  t.same(kindsOf(signed.verify([signed.read()])), []);
  t.same(kindsOf(signed.verify([file])), ['checkpoints:4 missing'], 'a checkpoint of the run would name it');
  t.same(kindsOf(signed.verify([file], { notes: registered })), []);
  // The start checkpoint of a later process states the end of the log that this process found.
  const before = signed.read().length;
  await signed.run(1);
  const later = signed.read().subarray(before);
  const notes = [...registered, ...signed.notes.slice(-2)];
  t.same(
    kindsOf(signed.verify([Buffer.concat([file, later])], { notes })),
    ['1:6 missing'],
    'only until the next start',
  );
});

t.test('registry and machine collude: found only by a head or a proof that is stored elsewhere', async (t) => {
  const [genuine, forged] = logsOf(t, 'gw.example/a', 'gw.example/a');
  if (genuine === undefined || forged === undefined) throw new Error('there are no logs');
  Object.assign(forged, { instance: genuine.instance });
  for (const log of [genuine, forged]) await log.run(3);
  const [registry, rewritten] = [await openRegistry(t), await openRegistry(t)];
  const [start = ''] = genuine.notes;
  const { head = '', receipt = '' } = await registry.submitStart(start, genuine.instance);
  await rewritten.submitStart(forged.notes[0] ?? '', forged.instance);
  // The registry signs the new list with its own key.
  const rows = (await rewritten.listed()).map(({ received_at, note }) => {
    const { text } = parseNote(note);
    const ofInstance = note.slice(0, note.indexOf('— control.example'));
    return { received_at, note: ofInstance + registry.signer.receiptFor(text, Math.floor(received_at / 1000)) };
  });
  const given = { signer: registry.signer, keys: genuine.keys };
  t.same(kindsOf(witnessedVerdict([forged.read()], rows, given)), [], 'nothing contradicts the forged log');
  const list = new WitnessedList([registry.signer.receiptKey]);
  for (const { received_at, note } of rows) list.take(received_at, note);
  t.equal(
    list.unlike(head),
    "the registry's checkpoint list was changed: its beginning (1 checkpoint) differs from the list that the registry signed earlier",
  );
  // A proof contains the checkpoint and its receipt.
  const verdict = witnessedVerdict([forged.read()], rows, { ...given, elsewhere: [start + receipt] });
  t.same(kindsOf(verdict), ['elsewhere:1 rewritten', 'elsewhere:1 missing']);
});
