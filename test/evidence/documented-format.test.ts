import { hash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import t, { type Test } from 'tap';
import { noteName } from '../../src/config/schema/access-log.js';
import { readCheckpoint, runKeyName, signCheckpoint } from '../../src/evidence/checkpoint.js';
import { parseProof, proofText } from '../../src/evidence/line-proof.js';
import { MerkleTree } from '../../src/evidence/merkle-tree.js';
import { consistencyProof, InclusionPath } from '../../src/evidence/tree-proof.js';
import { forPurpose, InvalidNote, keyText, NoteSigner, parseNote } from '../../src/evidence/signed-note.js';
import { parseSubmission, readListHead, signListHead, submissionText } from '../../src/evidence/submission.js';
import { Witness } from '../../src/registry/checkpoints/witness.js';
import { openRegistryDatabase } from '../../src/registry/registry-database.js';
import { tableOf } from '../document-tables.js';
import { WitnessedRun } from '../registry/witnessed-run.js';
import { sampleLines, sampleNote, sampleRun, signerOf } from './sample-run.js';

const page = readFileSync('docs/audit-log.md', 'utf8');

t.test('the documented vectors match the code', (t) => {
  const { lines, leaves } = sampleLines(7);
  const receipt = signerOf('control.example', 'registry').receiptFor(parseNote(sampleNote).text, 1_795_168_861);
  const tree = new MerkleTree();
  for (const leaf of leaves.slice(0, 3)) tree.append(leaf);
  tree.takeGrowth();
  for (const leaf of leaves.slice(3)) tree.append(leaf);
  const submission = submissionText({ oldSize: 3, proof: consistencyProof(tree.takeGrowth()), note: sampleNote });
  const path = new InclusionPath(4, 7);
  for (const leaf of leaves) path.take(leaf);
  const proof = proofText({
    ...{ previous: leaves[3] ?? '', line: Buffer.from(lines[4] ?? ''), index: 4 },
    ...{ path: path.hashes(), note: sampleNote + receipt },
  });
  const thousand = sampleLines(1_000);
  t.ok(page.includes(`\`${thousand.leaves[999] ?? ''}\``), 'the hash of line 1000');
  t.ok(page.includes(`\`${thousand.tree.root().toString('base64')}\``), 'the root at line 1000');
  t.ok(page.includes(`\`\`\`\n${sampleNote}\`\`\``), 'the checkpoint');
  const block = `\`\`\`\n${receipt}${hash('sha256', submission)}\n${hash('sha256', proof)}\n\`\`\``;
  t.ok(page.includes(block), 'the receipt, the submission and the proof');
  t.end();
});

function isAccepted(read: () => unknown): boolean {
  try {
    read();
    return true;
  } catch (error) {
    if (error instanceof InvalidNote) return false;
    throw error;
  }
}

function isCheckpointOf(name: string, run = sampleRun, size = 1): boolean {
  return isAccepted(() => {
    const instance = NoteSigner.inMemory(name);
    const state = { name, run, size, root: Buffer.alloc(32), occasion: 'periodic' as const, at: 0 };
    readCheckpoint(signCheckpoint(state, instance, NoteSigner.inMemory(runKeyName(name, run))), [instance.key]);
  });
}

async function openWitness(t: Test) {
  const database = await openRegistryDatabase({ url: 'sqlite::memory:', generation: 'of the test' });
  t.teardown(() => database.destroy());
  const now = Date.now();
  const witness = new Witness({ database, clock: { now: () => now }, signer: NoteSigner.inMemory('control.example') });
  return { database, now, take: (body: string) => witness.take(body) };
}

const digits = (count: number): number => 10 ** (count - 1);
const hashes = (count: number): Buffer[] => Array.from({ length: count }, () => Buffer.alloc(32));
const lineProof = { previous: '0'.repeat(64), line: Buffer.from('a line'), index: 0, path: [], note: sampleNote };

t.test('the documented limits match the code', async (t) => {
  const { take } = await openWitness(t);
  const isMessage = async (key: string, everySeconds: number): Promise<boolean> => {
    const { problem } = await take(JSON.stringify({ key, everySeconds, submission: 'old 0' }));
    return problem !== 'the message is not a JSON object with valid fields key, everySeconds and submission';
  };
  const list = NoteSigner.inMemory('control.example');
  const listKey = forPurpose(list.key, 'note');
  const keeps: Readonly<Record<string, (limit: number) => boolean | Promise<boolean>>> = {
    '`<name>` of an instance': (limit) => {
      const [ofConfig, ofCheckpoint] = [
        new RegExp(noteName).test('a'.repeat(limit)),
        isCheckpointOf('a'.repeat(limit)),
      ];
      if (ofConfig !== ofCheckpoint) throw new Error('the configuration and the checkpoints allow different names');
      return ofConfig;
    },
    'name of a key, `<name>/<run>` included': (limit) => isAccepted(() => NoteSigner.inMemory('a'.repeat(limit))),
    '`<run>`': (limit) => isCheckpointOf('gw', '0'.repeat(limit)) && !isCheckpointOf('gw', '0'.repeat(limit - 1)),
    'number of lines in a checkpoint, also after `previous`': (limit) =>
      isCheckpointOf('gw', sampleRun, digits(limit)) && !isCheckpointOf('gw', sampleRun, 0),
    '`old`, `index`, size of the list': (limit) =>
      [0, digits(limit)].every((size) =>
        [
          () => parseSubmission(submissionText({ oldSize: size, proof: [], note: sampleNote })),
          () => parseProof(proofText({ ...lineProof, index: size })),
          () => readListHead(signListHead({ size, root: Buffer.alloc(32) }, list), listKey),
        ].every(isAccepted),
      ),
    'checkpoint with all its signatures': (limit) =>
      isAccepted(() => parseNote(`${sampleNote}— ${'x'.repeat(limit - sampleNote.length - 12)} AAAAAAA=\n`)),
    submission: (limit) => isAccepted(() => parseSubmission('old 0\n\n'.padEnd(limit, 'x'))),
    'consistency proof in a submission': (limit) =>
      isAccepted(() => parseSubmission(submissionText({ oldSize: 1, proof: hashes(limit), note: sampleNote }))),
    'path in a proof': (limit) => isAccepted(() => parseProof(proofText({ ...lineProof, path: hashes(limit) }))),
    proof: (limit) => isAccepted(() => parseProof(proofText(lineProof).padEnd(limit, 'x'))),
    '`key` of a message': (limit) => isMessage('k'.repeat(limit), 10),
    '`everySeconds` of a message': async (limit) => (await isMessage('k', limit)) && !(await isMessage('k', 0)),
  };
  const rows = tableOf(page, 'part', 'form', 'limit');
  t.same(
    rows.map(([part]) => part),
    Object.keys(keeps),
  );
  for (const [part = '', , limit = ''] of rows) {
    const most = Number((/[\d,]+/.exec(limit)?.[0] ?? '').replaceAll(',', ''));
    t.equal(await keeps[part]?.(most), true, `${part}: ${limit}`);
    t.equal(await keeps[part]?.(most + 1), false, `${part}: beyond ${limit}`);
  }
});

t.test('the documented grammar of names and runs matches the code', (t) => {
  const forms = tableOf(page, 'part', 'form', 'limit').map(([, form = '']) => /^`([^`]+)`/.exec(form)?.[1] ?? '');
  const [name = '', keyName = '', run = ''] = forms.map((form) => `^${form}$`);
  for (let code = 0x20; code < 0x7f; code += 1) {
    const character = String.fromCharCode(code);
    for (const text of [character, `a${character}`]) {
      t.equal(new RegExp(name).test(text), isCheckpointOf(text), `name ${text}`);
      t.equal(
        new RegExp(keyName).test(text),
        isAccepted(() => NoteSigner.inMemory(text)),
        `name of a key ${text}`,
      );
    }
    const id = character.repeat(26);
    t.equal(new RegExp(run).test(id), isCheckpointOf('gw', id), `run ${id}`);
  }
  t.end();
});

t.test("the documented statuses and findings of the registry's replies match the code", async (t) => {
  const { database, now, take } = await openWitness(t);
  let names = 0;
  /** A run (the log of one process) of a new gateway. The registry has received the checkpoint of its start. */
  const begun = async () => {
    const run = new WitnessedRun(NoteSigner.inMemory(`gw.example/${(names += 1)}`)).write(1);
    const start = run.submit('start', now);
    await take(start);
    return { run, start };
  };
  const unknown = () => new WitnessedRun(NoteSigner.inMemory(`gw.example/${(names += 1)}`)).write(1);
  const changed = (body: string, change: (submission: string) => string): string => {
    const message = JSON.parse(body) as { submission: string };
    return JSON.stringify({ ...message, submission: change(message.submission) });
  };
  const bodies: readonly (() => string | Promise<string>)[] = [
    () => '{}',
    () => {
      const run = unknown();
      const key = keyText(NoteSigner.inMemory(run.instance.key.name).key);
      return JSON.stringify({ ...(JSON.parse(run.submit('start', now)) as object), key });
    },
    async () => {
      const { run } = await begun();
      return changed(run.write(1).submit('periodic', now), (submission) => submission.replace(/\n.+\n$/, '\n'));
    },
    async () => {
      const { run } = await begun();
      return changed(run.write(1).submit('periodic', now), (submission) => `${submission}— x AAAAAAA=\n`);
    },
    async () => {
      const { run } = await begun();
      return new WitnessedRun(NoteSigner.inMemory(run.instance.key.name)).write(1).submit('start', now);
    },
    async () => {
      const { run } = await begun();
      const ended = database.updateTable('instance_keys').set({ counts_to: now - 1 });
      await ended.where('name', '=', run.instance.key.name).execute();
      return run.write(1).submit('periodic', now);
    },
    async () => (await begun()).start,
    () => unknown().submit('periodic', now),
    () => unknown().submit('start', now, { oldSize: 1, proof: [] }),
    async () => {
      const { run } = await begun();
      return run.write(1).submit('periodic', now, { signer: NoteSigner.inMemory(run.signer.key.name) });
    },
    async () => {
      const { run } = await begun();
      await take(run.write(9).submit('periodic', now));
      const unsent = Object.assign(new WitnessedRun(run.instance), { id: run.id, signer: run.signer }).write(5);
      return unsent.submit('periodic', now);
    },
    async () => (await begun()).run.write(3).submit('periodic', now, { oldSize: 2, proof: [] }),
    async () => (await begun()).run.submit('periodic', now - 1),
    async () => {
      const { run } = await begun();
      await take(run.write(1).submit('end', now));
      return run.write(1).submit('periodic', now);
    },
    async () => (await begun()).run.write(3).submit('periodic', now, { proof: [] }),
    async () => (await begun()).run.write(3).submit('periodic', now),
  ];
  const rows = tableOf(page, 'status', 'when', 'finding');
  t.equal(rows.length, bodies.length);
  const findings = () => database.selectFrom('checkpoint_findings').selectAll().execute();
  for (const [index, [status = '', when = '', finding = '']] of rows.entries()) {
    const body = await bodies[index]?.();
    const before = new Set((await findings()).map(({ id }) => id));
    const verdict = await take(body ?? '');
    t.equal(String(verdict.status), status, `${when}: ${verdict.problem ?? ''}`);
    const added = (await findings()).filter(({ id }) => !before.has(id)).map(({ kind }) => kind);
    t.equal(added.join(), /^`(\w+)`/.exec(finding)?.[1] ?? '', when);
    if (verdict.status === 200) t.match(verdict.receipt, /^— control\.example /);
  }
});
