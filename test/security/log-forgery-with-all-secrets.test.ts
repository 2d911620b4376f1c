import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import t from 'tap';
import { SignedRuns } from '../../src/audit/signed-runs.js';
import { WitnessedList } from '../../src/audit/witnessed-list.js';
import { runKeyName, signCheckpoint } from '../../src/evidence/checkpoint.js';
import { leafHash, MerkleTree } from '../../src/evidence/merkle-tree.js';
import { consistencyProof } from '../../src/evidence/tree-proof.js';
import { keyText, NoteSigner } from '../../src/evidence/signed-note.js';
import { submissionText } from '../../src/evidence/submission.js';
import { Witness } from '../../src/registry/checkpoints/witness.js';
import { openRegistryDatabase } from '../../src/registry/registry-database.js';
import { CheckpointFile } from '../../src/telemetry/checkpoints/checkpoint-file.js';
import { CheckpointLog } from '../../src/telemetry/checkpoints/checkpoint-log.js';
import { requestLine } from '../audit/sample-log.js';
import { linesOf, verify } from '../audit/verify-log.js';
import { openLog, testSecret } from '../telemetry/open-log.js';

const changesTried = 5_000;
/** One in this many forged logs is also submitted to the witness: the part of the registry that signs receipts. */
const betweenSubmissions = 50;

t.test('log forgery with the log file and all stored secrets: lines with a receipt cannot be rewritten', async (t) => {
  const directory = t.testdir();
  const database = await openRegistryDatabase({ url: 'sqlite::memory:', generation: 'of the test' });
  t.teardown(() => database.destroy());
  const store = NoteSigner.inMemory('control.example');
  const witness = new Witness({ database, clock: { now: Date.now }, signer: store });
  const instance = NoteSigner.inMemory('gw.example/a');
  const submit = (submission: string) =>
    witness.take(JSON.stringify({ key: keyText(instance.key), everySeconds: 10, submission }));
  const checkpoints = new CheckpointLog({
    ...{ instance, places: [new CheckpointFile(`${directory}/checkpoints.jsonl`)], everyMilliseconds: 1_000_000 },
    receipts: {
      ...{ submit, key: null, registerMilliseconds: 5_000, isRequired: false, besideFile: null },
      close: () => Promise.resolve(),
    },
  });
  const log = openLog(`${directory}/access.log`, { checkpoints, secret: testSecret });
  await checkpoints.register();
  for (let count = 0; count < 20; count += 1) log.write(requestLine({ path: `/v1/payouts/${count}` }));
  await log.close(30_000);

  const original = readFileSync(`${directory}/access.log`);
  const lines = linesOf(original);
  const run = lines[0]?.slice(28, 54) ?? '';
  const rows = await database.selectFrom('checkpoint_list').selectAll().orderBy('seq').execute();
  const verdictOf = (file: Buffer, forged: readonly string[]) => {
    const list = new WitnessedList([store.receiptKey]);
    for (const { received_at, note } of rows) list.take(received_at, note);
    const signed = new SignedRuns([{ key: instance.key, from: -Infinity, to: Infinity }], -Infinity, list);
    [...rows.map(({ note }) => note), ...forged].forEach((note, index) => {
      const bytes = Buffer.from(JSON.stringify({ note }));
      signed.take({ file: 'registry', number: index + 1, bytes, ended: true });
    });
    signed.link();
    return verify([file], { secrets: [], signed });
  };
  t.match(verdictOf(original, []), { intact: true, proofs: [{ run, signedTo: 22, witnessedTo: 22, unsigned: 0 }] });

  const index = fc.nat({ max: lines.length - 1 });
  const edited = fc.tuple(index, fc.nat({ max: 200 }), fc.integer({ min: 1, max: 255 }));
  const change = fc.oneof(
    edited.map(([at, offset, mask]) => {
      const bytes = Buffer.from(lines[at] ?? '');
      const place = 70 + (offset % (bytes.length - 160));
      bytes[place] = (bytes[place] ?? 0) ^ mask;
      return lines.with(at, bytes.toString('latin1'));
    }),
    index.map((at) => lines.toSpliced(at, 1)),
    index.map((at) => lines.slice(0, at)),
    fc.tuple(index, index).map(([from, to]) => lines.toSpliced(to, 0, lines[from] ?? '')),
    fc.tuple(index, index).map(([one, other]) => lines.with(one, lines[other] ?? '').with(other, lines[one] ?? '')),
  );
  const runKey = NoteSigner.inMemory(runKeyName('gw.example/a', run));
  let [different, detected, submitted, rejected] = [0, 0, 0, 0];
  await fc.assert(
    fc.asyncProperty(change, async (changed) => {
      const { file, tree } = rehashedWithTree(changed);
      if (file.equals(original)) return;
      different += 1;
      // The key of the run existed only in its process. The attacker
      // signs with the instance key, and with another key for the run.
      const at = Date.now();
      const end = {
        name: 'gw.example/a',
        run,
        size: Math.max(1, tree.size),
        root: tree.root(),
        occasion: 'end',
        at,
      } as const;
      const note = signCheckpoint(end, instance, runKey);
      if (!verdictOf(file, [note]).intact && !verdictOf(file, []).intact) detected += 1;
      if (different % betweenSubmissions !== 0) return;
      submitted += 1;
      const { status } = await submit(
        submissionText({ oldSize: 22, proof: consistencyProof(tree.takeGrowth()), note }),
      );
      if (status !== 200) rejected += 1;
    }),
    { numRuns: changesTried },
  );
  t.comment(`${different} changes, ${detected} detected; ${submitted} submitted, ${rejected} rejected`);
  t.ok(different > (changesTried * 9) / 10);
  t.equal(detected, different);
  t.ok(submitted > 0);
  t.equal(rejected, submitted);
});

/**
 * Renumbers and rehashes lines, as an attacker with write access to the file can. Returns the new file and its Merkle
 * tree.
 */
function rehashedWithTree(lines: readonly string[]): { file: Buffer; tree: MerkleTree } {
  const tree = new MerkleTree();
  let previous = '0'.repeat(64);
  const forged = lines.map((line, index) => {
    const text = line.slice(0, -76).replace(/"sequence":\d+$/, `"sequence":${index + 1}`);
    const whole = text.replace(/"previous":"[0-9a-f]{64}"/, `"previous":"${previous}"`);
    previous = leafHash(previous, whole);
    tree.append(previous);
    return `${whole},"hash":"${previous}"}}`;
  });
  return { file: Buffer.from(forged.map((line) => `${line}\n`).join('')), tree };
}
