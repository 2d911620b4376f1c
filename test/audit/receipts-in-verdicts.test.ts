import { generateKeyPairSync } from 'node:crypto';
import { readFileSync } from 'node:fs';
import t from 'tap';
import { KnownChains } from '../../src/audit/known-chains.js';
import { readPinned } from '../../src/audit/pinned-keys.js';
import { SignedRuns } from '../../src/audit/signed-runs.js';
import { WitnessedList, WitnessKeys } from '../../src/audit/witnessed-list.js';
import { readCheckpoint, runKeyName, signCheckpoint } from '../../src/evidence/checkpoint.js';
import { leafHash } from '../../src/evidence/merkle-tree.js';
import { InvalidNote, NoteSigner, parseNote } from '../../src/evidence/signed-note.js';
import { signListHead } from '../../src/evidence/submission.js';
import { uniqueId } from '../../src/telemetry/unique-id.js';
import { SignedLog } from './signed-log.js';
import { kindsOf, verify as verifyFiles } from './verify-log.js';

const [former, present] = [NoteSigner.inMemory('control.example'), NoteSigner.inMemory('control.example')];

/** A note with a receipt, which is the signature of the witness with a time. @param at in milliseconds since 1970 */
function received(note: string, witness: NoteSigner, at: number): string {
  return note + witness.receiptFor(parseNote(note).text, Math.floor(at / 1_000));
}

t.test('receipts of a former key of the witness count when that key is given', async (t) => {
  const signed = new SignedLog(t.testdir());
  await signed.run(3);
  const notes = signed.notes.map((note) => received(note, former, Date.now()));
  const verify = (...keys: NoteSigner[]) => {
    const witnessed = new WitnessedList(keys.map(({ receiptKey }) => receiptKey));
    for (const note of notes) witnessed.take(Date.now(), note);
    return signed.verify([signed.read()], { notes, witnessed, from: 'registry' });
  };
  t.match(verify(present, former), { intact: true, proofs: [{ signedTo: 5, witnessedTo: 5 }] });
  t.match(verify(present), { intact: true, proofs: [{ signedTo: 5, witnessedTo: 0 }] });
});

t.test('a head by a key of the witness that is not given is a note, by a given key it is compared', (t) => {
  const head = signListHead({ size: 1, root: Buffer.alloc(32) }, former);
  const list = new WitnessedList([present.receiptKey]);
  t.equal(list.unlike(head), null);
  t.match(list.notes, [
    /^1 signed head of the registry's checkpoint list could not be compared, because no signature matches a given key: add .* --witness-key\. A head is /,
  ]);
  const both = new WitnessedList([present.receiptKey, former.receiptKey]);
  t.match(both.unlike(head), 'checkpoints were removed');
  t.same(both.notes, []);
  t.end();
});

t.test('whether a key was valid is judged by the clock of the witness, if there is a receipt', async (t) => {
  const signed = new SignedLog(t.testdir());
  await signed.run(1);
  const [note = ''] = signed.notes;
  const { at } = readCheckpoint(note, [signed.instance.key]);
  const witness = new WitnessKeys([present.receiptKey]);
  const read = (from: number, to: number, receivedAt?: number): string => {
    const keys = [{ key: signed.instance.key, from, to }];
    try {
      return readPinned(receivedAt === undefined ? note : received(note, present, receivedAt), keys, witness).occasion;
    } catch (error) {
      if (error instanceof InvalidNote) return error.message;
      throw error;
    }
  };
  const refused = 'the public key of the signature was not valid at the time of the checkpoint';
  const refusedReceipt = 'the public key of the signature was not valid when the registry received the checkpoint';
  t.equal(read(at + 20_000, Infinity, at + 20_000), 'start', 'the clock of the gateway is behind');
  t.equal(read(-Infinity, at - 20_000, at - 20_000), 'start', 'it is ahead');
  t.equal(read(-Infinity, at + 20_000, at + 30_000), 'start', 'within its own time');
  t.equal(read(-Infinity, at - 20_000, at), refusedReceipt, 'received after the key ended');
  t.equal(read(at + 20_000, Infinity, at), refusedReceipt, 'received before the key was pinned');
  t.equal(read(at + 59_000, Infinity), 'start', 'without a receipt a minute is tolerated');
  t.equal(read(at + 61_000, Infinity), refused);
  t.equal(read(-Infinity, at - 1), refused, 'but not after its end: it may be stolen');
});

t.test('a receipt in a line of the log counts for a checkpoint from a file', async (t) => {
  const signed = new SignedLog(t.testdir());
  await signed.run(2);
  const { notes } = signed;
  const witnessed = new WitnessedList([present.receiptKey], false);
  const { run, size } = readCheckpoint(notes[0] ?? '', [signed.instance.key]);
  const note = received(notes[0] ?? '', present, Date.now());
  const verdict = signed.verify([signed.read()], { witnessed });
  t.match(verdict.proofs, [{ run, witnessedTo: 0 }], 'this log has no receipt');
  const runs = new SignedRuns(signed.keys, -Infinity, witnessed);
  notes.forEach((text, index) => {
    runs.take({ file: 'file', number: index + 1, bytes: Buffer.from(JSON.stringify({ note: text })), ended: true });
  });
  runs.link();
  const hashes = signed
    .read()
    .toString()
    .trimEnd()
    .split('\n')
    .map((line) => line.slice(-67, -3));
  hashes.forEach((hash, index) => t.equal(runs.compare(run, index + 1, hash), null));
  t.equal(runs.compareWitnessed({ note }, { file: 'access.log', line: 1 }), null);
  t.match(runs.proofs([{ id: run, lines: hashes.length, newest: null }]), [{ witnessedTo: size, signedTo: 4 }]);
});

/** Lines of a made-up chain with this many gaps of one line each. A verifier needs no secret for them. */
function chainWithGaps(id: string, gaps: number): Buffer {
  let [text, previous] = ['', '0'.repeat(64)];
  for (let count = 0; count <= gaps; count += 1) {
    const line = `{"service":{"ephemeral_id":"${id}"},"@timestamp":"2026-11-20T10:00:00.000Z","gateway":{"environment":"live","chain":{"algorithm":"rfc6962-sha256","previous":"${previous}","lost":0}},"event":{"id":"x","dataset":"gateway.access","kind":"state","category":["process"],"type":["info"],"action":"checkpoint","reason":"${count === 0 ? 'start' : 'interval'}","sequence":${1 + 2 * count}`;
    previous = leafHash(previous, line);
    text += `${line},"hash":"${previous}"}}\n`;
  }
  return Buffer.from(text);
}

t.test('a made-up chain with many gaps does not hide which signed run was removed', async (t) => {
  const signed = new SignedLog(t.testdir());
  await signed.run(2);
  const first = signed.read();
  await signed.run(2);
  const { run } = readCheckpoint(signed.notes.at(-1) ?? '', [signed.instance.key]);
  const { findings, findingCount, proofs } = signed.verify([first, chainWithGaps(uniqueId(), 1_100)]);
  t.ok(findingCount > 1_100);
  t.match(findings[0], { kind: 'unsigned' });
  t.ok(
    findings.some(({ kind, message }) => kind === 'missing' && message.includes(run)),
    'a finding names the run',
  );
  t.match(proofs?.[0], { run, name: 'gw.example/a', signedTo: 0, missing: 4 }, 'the proofs have it too');
});

t.test('made-up chains evict no chain with signed checkpoints', (t) => {
  const chains = new KnownChains<{ readonly id: string; readonly proved: number }>();
  const chain = (id: string, proved: number) => ({ id, proved });
  t.equal(chains.add(chain('signed', 1), true), null);
  for (let index = 0; index < 100_000; index += 1) chains.add(chain(`${index}`, 1), false);
  const evicted = chains.add(chain('one more', 1), false);
  t.equal(evicted?.id, '0', 'the oldest without a signature');
  if (evicted !== null) chains.evict(evicted);
  t.ok(chains.has('signed'));
  t.notOk(chains.has('0'));
  chains.add(chain('unproved', 0), false);
  t.equal(chains.add(chain('another', 1), false)?.id, 'unproved', 'first those without a proved line');
  t.end();
});

t.test('--running excuses no run that is silent at the time of the copy', async (t) => {
  const signed = new SignedLog(t.testdir());
  const { log } = signed.open(2);
  await log.close(30_000);
  const lines = signed.read().toString().split('\n').slice(0, 3);
  const cut = Buffer.from(`${lines.join('\n')}\n`);
  const notes = signed.notes.slice(0, 1);
  const verify = (asOf: number) => kindsOf(signed.verify([cut], { notes, running: true, asOf }));
  t.same(verify(Date.now()), []);
  t.same(verify(Date.now() + 170_000), []);
  t.same(verify(Date.now() + 190_000), ['1:3 truncated']);
});

t.test('an instance that was renamed and kept its key is no fork', async (t) => {
  const { privateKey } = generateKeyPairSync('ed25519');
  const signed = new SignedLog(t.testdir(), 'access.log', new NoteSigner('gw.example/a', privateKey));
  await signed.run(2);
  const last = readCheckpoint(signed.notes.at(-1) ?? '', [signed.instance.key]);
  const lastHash = readFileSync(signed.file).toString().trimEnd().slice(-67, -3);
  const startOf = (signer: NoteSigner, name: string) => {
    const id = uniqueId();
    const start = {
      ...({ name, run: id, size: 1, root: Buffer.alloc(32), occasion: 'start', at: Date.now() } as const),
      previous: { run: last.run, size: last.size, hash: Buffer.from(lastHash, 'hex') },
    };
    return signCheckpoint(start, signer, NoteSigner.inMemory(runKeyName(name, id)));
  };
  const kinds = (signer: NoteSigner) => {
    const keys = [...signed.keys, { key: signer.key, from: -Infinity, to: Infinity }];
    const notes = [...signed.notes, startOf(signer, signer.key.name)];
    return kindsOf(signed.verify([signed.read()], { notes, keys }));
  };
  t.same(kinds(new NoteSigner('gw.example/renamed', privateKey)), ['checkpoints:3 missing']);
  t.same(kinds(NoteSigner.inMemory('gw.example/other')), ['checkpoints:3 forked', 'checkpoints:3 missing']);
});

t.test('a note says when the signed time and the time of the receipt differ', async (t) => {
  const signed = new SignedLog(t.testdir());
  await signed.run(2);
  const verify = (later: number) => {
    const notes = signed.notes.map((note) => received(note, present, Date.now() + later));
    return signed.verify([signed.read()], { notes, witnessed: new WitnessedList([present.receiptKey], false) });
  };
  t.same(verify(0).notes, []);
  const { intact, notes } = verify(3_600_000);
  t.ok(intact);
  t.match(notes, [
    /^2 checkpoints reached the registry more than 60 s before or after the time of the signature.*; the first was signed at .*, received at /,
  ]);
});

t.test('a run that began after the checkpoints were fetched is a note, and an older run stays unsigned', async (t) => {
  const signed = new SignedLog(t.testdir());
  await signed.run(2);
  const { length } = signed.notes;
  await signed.run(3);
  const verdictOf = (fetchedAt: number, lastNote = signed.notes.length) => {
    const runs = new SignedRuns(signed.keys, -Infinity, null, fetchedAt);
    const lines = signed.notes.map((note, index) => ({
      ...{ file: 'checkpoints', number: index + 1, bytes: Buffer.from(JSON.stringify({ note })), ended: true },
    }));
    for (const line of lines.slice(0, length)) runs.take(line);
    runs.link();
    for (const line of lines.slice(0, lastNote)) runs.takeLater(line);
    return verifyFiles([signed.read()], { secrets: [], signed: runs });
  };
  const verdict = verdictOf(Date.now());
  t.same(kindsOf(verdict), []);
  t.match(verdict.notes, [/^the log run \w{26} began after the checkpoints were fetched, so its/]);
  t.match(verdict.proofs, [{ signedTo: 4 }, { signedTo: 0, unsigned: 5 }]);
  t.same(kindsOf(verdictOf(Date.now() + 120_000)), ['1:9 unsigned'], 'it was signed before they were fetched');
  t.same(kindsOf(verdictOf(Date.now(), length)), ['1:9 unsigned'], 'no later checkpoint has it');
});
