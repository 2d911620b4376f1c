import { execFileSync, spawnSync } from 'node:child_process';
import { hash } from 'node:crypto';
import path from 'node:path';
import t from 'tap';
import { entryHash, MerkleTree, type TreeGrowth } from '../../src/evidence/merkle-tree.js';
import { consistencyProof, isConsistent } from '../../src/evidence/tree-proof.js';
import {
  forPurpose,
  InvalidNote,
  keyText,
  parseKey,
  parseNote,
  receiptTimeOf,
} from '../../src/evidence/signed-note.js';
import { parseSubmission, readListHead, signListHead, submissionText } from '../../src/evidence/submission.js';
import { sampleInstance, sampleLines, sampleNote, signerOf } from './sample-run.js';

const store = signerOf('control.example', 'registry');
const sampleReceipt =
  '— control.example 8VaiFQAAAABrABpdPGcaN959Hd3OBYmwvOkZSDSpNZLdHzeA4kaqd66IpwgRenbzbUeLSESRd7MYhs4xUKeYVVCFSTtU+0Kx4jtcBQ==\n';

/**
 * Builds a tree that grows to each of these sizes in order.
 * @returns the tree, and its growth in the last step
 */
function grown(leaves: readonly string[], sizes: readonly number[]): { tree: MerkleTree; growth: TreeGrowth } {
  const tree = new MerkleTree();
  let growth = tree.takeGrowth();
  for (const size of sizes) {
    for (const leaf of leaves.slice(tree.size, size)) tree.append(leaf);
    growth = tree.takeGrowth();
  }
  return { tree, growth };
}

const { leaves } = sampleLines(70);
const pairs = leaves.flatMap((_, n) => Array.from({ length: n + 1 }, (_, m) => [m + 1, n + 1] as const));

t.test('a submission has the bytes of the documented example', (t) => {
  const { growth } = grown(leaves, [3, 7]);
  const proof = consistencyProof(growth);
  t.equal(proof.length, 4);
  const text = submissionText({ oldSize: 3, proof, note: sampleNote });
  t.equal(hash('sha256', text), 'af3d20fc0a15ac563387e5a17b75b3b5cfb53a25df5f79c6052da9537b6cb289');
  t.same(parseSubmission(text), { oldSize: 3, proof, note: sampleNote });
  for (const [bad, why] of [
    ['', /number of lines that the registry knows/],
    [text.replace('old 3', 'old -3'), /number of lines that the registry knows/],
    [text.replace('old 3', 'old 03'), /number of lines that the registry knows/],
    [text.replace('old 3\n', 'old 3\nAAAA\n'), /SHA-256/],
    [`old 3\n${`${'A'.repeat(43)}=\n`.repeat(64)}\n${sampleNote}`, /63/],
    [text + ' '.repeat(40_000), /32768/],
  ] as const)
    t.throws(() => parseSubmission(bad), { name: 'InvalidNote', message: why });
  t.end();
});

t.test('a receipt has the bytes of the documented example, and contains its time', (t) => {
  const { text } = parseNote(sampleNote);
  t.equal(store.receiptFor(text, 1_795_168_861), sampleReceipt);
  const signed = parseNote(sampleNote + sampleReceipt);
  t.equal(receiptTimeOf(signed, store.receiptKey), 1_795_168_861_000);
  t.equal(receiptTimeOf(parseNote(sampleNote), store.receiptKey), null, 'no receipt');
  t.equal(receiptTimeOf(signed, signerOf('control.example', 'another').receiptKey), null, 'a receipt by another key');
  t.equal(receiptTimeOf(signed, store.key), null, 'a note key is not a receipt key');
  t.equal(receiptTimeOf({ ...signed, text: signed.text.replace('\n7\n', '\n8\n') }, store.receiptKey), null);
  const later = sampleReceipt.replace('rABpd', 'rABpe');
  t.not(later, sampleReceipt);
  t.equal(receiptTimeOf(parseNote(sampleNote + later), store.receiptKey), null, 'a changed time');
  t.end();
});

t.test('a witness key is written and parsed with its purpose', (t) => {
  const key = parseKey(keyText(store.receiptKey));
  t.equal(key.purpose, 'receipt');
  t.same(key.id, Buffer.from(sampleReceipt.split(' ')[2] ?? '', 'base64').subarray(0, 4));
  t.equal(parseKey(keyText(store.key)).purpose, 'note');
  t.notSame(store.key.id, key.id);
  t.same(forPurpose(key, 'note').id, store.key.id);
  t.throws(() => parseKey(keyText(store.key).replace(/\+A/, '+C')), InvalidNote, 'an unknown type of key');
  t.end();
});

t.test('consistency is proved between any two sizes up to 70 leaves, whatever sizes were recorded between', (t) => {
  let count = 0;
  for (const [m, n] of pairs) {
    for (const sizes of [[m], [1, m], [Math.ceil(m / 2), m]]) {
      const { tree, growth } = grown(leaves, [...sizes, n]);
      const older = { size: m, root: grown(leaves, [m]).tree.root() };
      const newer = { size: n, root: tree.root() };
      count += Number(isConsistent(older, newer, consistencyProof(growth)));
    }
  }
  t.equal(count, 3 * pairs.length);
  t.end();
});

/** The root by its definition (RFC 6962, section 2.1). */
function definedRoot(leaves: readonly string[]): string {
  if (leaves.length <= 1) return leaves[0] ?? '';
  let half = 1;
  while (2 * half < leaves.length) half *= 2;
  const halves = [leaves.slice(0, half), leaves.slice(half)].map(definedRoot);
  return hash('sha256', Buffer.from(`01${halves.join('')}`, 'hex'));
}

t.test('the root is that of the definition at any size, although leaves are hashed in batches of 256', (t) => {
  const many = Array.from({ length: 1_030 }, (_, index) => entryHash(`entry ${index}`));
  for (const sizes of [
    [255, 256, 257],
    [300, 511, 512],
    [1, 513, 700],
    [1_023, 1_024, 1_025, 1_030],
  ]) {
    const tree = new MerkleTree();
    for (const size of sizes) {
      for (const leaf of many.slice(tree.size, size)) tree.append(leaf);
      t.equal(tree.size, size);
      t.equal(tree.root().toString('hex'), definedRoot(many.slice(0, size)), `${size} leaves`);
      if (size % 3 === 0) tree.takeGrowth();
    }
  }
  t.end();
});

t.test('consecutive growths can be proved as one, e.g. if a checkpoint was never sent', (t) => {
  const tree = new MerkleTree();
  for (const leaf of leaves.slice(0, 5)) tree.append(leaf);
  tree.takeGrowth();
  const older = { size: 5, root: tree.root() };
  for (const leaf of leaves.slice(5, 19)) tree.append(leaf);
  const first = tree.takeGrowth();
  for (const leaf of leaves.slice(19, 43)) tree.append(leaf);
  const second = tree.takeGrowth();
  const proof = consistencyProof({ before: first.before, added: first.added.with(second.added) });
  t.ok(isConsistent(older, { size: 43, root: tree.root() }, proof));
  t.end();
});

t.test('a wrong proof, size or root is rejected', (t) => {
  const wrong: string[] = [];
  for (const [m, n] of pairs.filter(([, n]) => n <= 33)) {
    const { tree, growth } = grown(leaves, [m, n]);
    const [older, newer] = [
      { size: m, root: grown(leaves, [m]).tree.root() },
      { size: n, root: tree.root() },
    ];
    const proof = consistencyProof(growth);
    const tries = [
      isConsistent({ ...older, root: Buffer.alloc(32) }, newer, proof),
      isConsistent(older, { ...newer, root: Buffer.alloc(32) }, proof),
      isConsistent(older, newer, [...proof, Buffer.alloc(32)]),
      n > m && isConsistent(older, newer, proof.slice(1)),
      n > m && isConsistent(newer, older, proof),
      ...proof.map((_, at) => isConsistent(older, newer, proof.with(at, Buffer.alloc(32)))),
    ];
    if (tries.includes(true)) wrong.push(`${m} to ${n}: ${tries.indexOf(true)}`);
  }
  t.same(wrong, []);
  t.ok(isConsistent({ size: 0, root: Buffer.alloc(32) }, { size: 3, root: grown(leaves, [3]).tree.root() }, []));
  t.notOk(isConsistent({ size: 0, root: Buffer.alloc(32) }, { size: 3, root: Buffer.alloc(32) }, [Buffer.alloc(32)]));
  t.end();
});

const withoutPython =
  spawnSync('python3', ['--version']).error !== undefined &&
  'no python3: CONSISTENCY PROOFS ARE NOT COMPARED WITH ANOTHER IMPLEMENTATION';

t.test('another implementation creates and accepts the same proofs', { skip: withoutPython }, (t) => {
  const cases = pairs.map(([m, n]) => {
    const { growth } = grown(leaves, [m, n]);
    return [m, n, consistencyProof(growth).map((one) => one.toString('hex'))] as const;
  });
  const program = path.join(process.cwd(), 'test/evidence/rfc9162.py');
  const output = execFileSync('python3', [program], {
    ...{ input: JSON.stringify([leaves, cases]), encoding: 'utf8' as const, maxBuffer: 64 * 1024 * 1024 },
  });
  const results = JSON.parse(output) as [proof: string[], older: string, newer: string, verifies: boolean][];
  const differing = cases.filter(([m, n, proof], index) => {
    const [own, older, newer, verifies] = results[index] ?? [[], '', '', false];
    const roots = [m, n].map((size) => grown(leaves, [size]).tree.root().toString('hex'));
    return !(verifies && own.join() === proof.join() && older === roots[0] && newer === roots[1]);
  });
  t.equal(results.length, pairs.length);
  t.same(differing, []);
  t.end();
});

t.test('only the witness can sign the head of a list', (t) => {
  const head = { size: 12, root: Buffer.alloc(32, 7) };
  const note = signListHead(head, store);
  t.ok(note.startsWith('control.example/checkpoints\n12\n'));
  t.same(readListHead(note, store.key), head);
  t.throws(() => readListHead(note, signerOf('control.example', 'another').key), InvalidNote);
  t.throws(() => readListHead(note.replace('\n12\n', '\n13\n'), store.key), InvalidNote);
  t.throws(
    () => readListHead(sampleNote, sampleInstance.key),
    /the signed list head must have three lines: "[^"]+", the number of checkpoints/,
  );
  t.end();
});
