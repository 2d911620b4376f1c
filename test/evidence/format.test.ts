import { hash } from 'node:crypto';
import t from 'tap';
import { readCheckpoint, signCheckpoint } from '../../src/evidence/checkpoint.js';
import { parseProof, proofText } from '../../src/evidence/line-proof.js';
import { MerkleTree } from '../../src/evidence/merkle-tree.js';
import { InclusionPath, rootOfPath } from '../../src/evidence/tree-proof.js';
import { InvalidNote, keyText, parseKey } from '../../src/evidence/signed-note.js';
import {
  sampleInstance,
  sampleLines,
  sampleName,
  sampleNote,
  sampleRun,
  sampleRunSigner,
  signerOf,
} from './sample-run.js';

t.test('leaf and root hashes match the documented example', (t) => {
  const { leaves, tree } = sampleLines(1_000);
  t.equal(leaves[999], '169e1326da292b41acdac439c787a7b44946685661ba76161ed8ce5369b15dea');
  t.equal(tree.root().toString('base64'), 'TJZ6BVze9fL3gjgcFCZIKCeGBClilV6UGP/I4xlaCGE=');
  t.equal(new MerkleTree().root().toString('hex'), hash('sha256', ''), 'the root of an empty tree');
  t.end();
});

t.test('a checkpoint has the bytes of the documented example', (t) => {
  const checkpoint = {
    ...{ name: sampleName, run: sampleRun, size: 7, root: sampleLines(7).tree.root() },
    ...{ occasion: 'end' as const, at: Date.parse('2026-11-20T10:01:00.000Z') },
  };
  t.equal(signCheckpoint(checkpoint, sampleInstance, sampleRunSigner), sampleNote);
  t.end();
});

t.test('a proof has the bytes of the documented example', (t) => {
  const { lines, leaves } = sampleLines(7);
  const path = new InclusionPath(4, 7);
  for (const leaf of leaves) path.take(leaf);
  // The note in the documented example also has this receipt, which `sampleNote` lacks.
  const receipt =
    '— control.example 8VaiFQAAAABrABpdPGcaN959Hd3OBYmwvOkZSDSpNZLdHzeA4kaqd66IpwgRenbzbUeLSESRd7MYhs4xUKeYVVCFSTtU+0Kx4jtcBQ==\n';
  const proof = {
    ...{ previous: leaves[3] ?? '', line: Buffer.from(lines[4] ?? ''), index: 4 },
    ...{ path: path.hashes(), note: sampleNote + receipt },
  };
  const text = proofText(proof);
  t.equal(hash('sha256', text), '078a54a464297df96257203a59c748b71498ec28b60125497eb1d615642f9705');
  t.same(parseProof(text), proof);
  t.same(readCheckpoint(proof.note, [sampleInstance.key]).size, 7, 'unknown signatures are ignored');
  t.end();
});

t.test('each leaf has an inclusion path to the root, and no other path is accepted', (t) => {
  for (let size = 1; size <= 40; size += 1) {
    const { leaves, tree } = sampleLines(size);
    for (const [index, leaf] of leaves.entries()) {
      const collected = new InclusionPath(index, size);
      for (const each of leaves) collected.take(each);
      const path = collected.hashes();
      const isRoot = (root: Buffer | null): boolean => root?.equals(tree.root()) === true;
      if (!isRoot(rootOfPath(index, size, leaf, path))) t.fail(`the path of leaf ${index} of ${size} is rejected`);
      const wrong = [
        rootOfPath(index, size, '00'.repeat(32), path),
        rootOfPath(index, size, leaf, path.slice(1)),
        rootOfPath(index, size, leaf, [...path, Buffer.alloc(32)]),
        rootOfPath(size, size, leaf, path),
        ...path.map((_, level) => rootOfPath(index, size, leaf, path.with(level, Buffer.alloc(32)))),
        ...leaves.map((_, other) => (other === index ? null : rootOfPath(other, size, leaf, path))),
      ];
      // In a tree with one leaf, the leaf is the root, and its path is empty. So `path.slice(1)` is not wrong there.
      if ((size === 1 ? wrong.slice(2) : wrong).some(isRoot))
        t.fail(`a wrong path of leaf ${index} of ${size} is accepted`);
    }
  }
  t.pass();
  t.end();
});

t.test('a checkpoint is valid only with both signatures', (t) => {
  const refused = (note: string, keys = [sampleInstance.key]): string => {
    try {
      readCheckpoint(note, keys);
      return 'accepted';
    } catch (error) {
      if (!(error instanceof InvalidNote)) throw error;
      return error.message;
    }
  };
  const [text = '', signatures = ''] = sampleNote.split('\n\n');
  const [byInstance = '', byRun = ''] = signatures.split('\n');
  t.equal(readCheckpoint(sampleNote, [sampleInstance.key]).run, sampleRun);
  t.equal(refused(sampleNote, []), 'no signature matches any of the given public keys');
  t.equal(
    refused(sampleNote, [signerOf(sampleName, 'another').key]),
    'no signature matches any of the given public keys',
  );
  t.equal(
    refused(sampleNote, [signerOf('gw.example/b', 'instance').key]),
    'no signature matches any of the given public keys',
  );
  t.equal(refused(`${text}\n\n${byRun}\n`), 'no signature matches any of the given public keys');
  t.equal(
    refused(`${text}\n\n${byInstance}\n`),
    'no signature matches the run key that the checkpoint contains (the key of one gateway process): the checkpoint was changed, or was signed without this key',
  );
  t.equal(refused(sampleNote.replace('\n7\n', '\n8\n')), 'no signature matches any of the given public keys');
  t.equal(refused(sampleNote.replace('10:01:00', '10:01:01')), 'no signature matches any of the given public keys');
  const other = signerOf(`${sampleName}/${sampleRun}`, 'another run key');
  t.equal(
    refused(sampleNote.replace(/^key .*$/m, `key ${keyText(other.key)}`)),
    'no signature matches any of the given public keys',
  );
  t.end();
});

t.test('the predecessor in a start and the successor in an end are parsed', (t) => {
  const root = sampleLines(1).tree.root();
  const base = { name: sampleName, run: sampleRun, size: 1, root, at: 1_795_168_861_000 };
  const read = (checkpoint: Parameters<typeof signCheckpoint>[0]): object =>
    readCheckpoint(signCheckpoint(checkpoint, sampleInstance, sampleRunSigner), [sampleInstance.key]);
  const previous = { run: '01M7WJMG35EDK4R664YCSW956X', size: 12, hash: root };
  t.match(read({ ...base, occasion: 'start', previous }), { occasion: 'start', previous });
  t.match(read({ ...base, occasion: 'start', previous: null }), { previous: null });
  t.match(read({ ...base, occasion: 'end', next: previous.run }), { occasion: 'end', next: previous.run });
  t.match(read({ ...base, occasion: 'periodic' }), { at: base.at, previous: undefined, next: undefined });
  t.end();
});

t.test('an invalid note, key or proof is rejected with a specific message', (t) => {
  const forms: [string, () => unknown, RegExp][] = [
    ['an empty note', () => readCheckpoint('', []), /no empty line before its signatures/],
    [
      'no signature',
      () => readCheckpoint('a\n\n', []),
      /a line after the empty line of the signed note is not a signature/,
    ],
    ['a long note', () => readCheckpoint('a'.repeat(20_000), []), /longer than 16384/],
    [
      'an invalid run',
      () => readCheckpoint(sampleNote.replace(sampleRun, 'run'), [sampleInstance.key]),
      /the first line of the checkpoint must be LOG_NAME\/RUN_ID/,
    ],
    [
      'an invalid size',
      () => readCheckpoint(sampleNote.replace('\n7\n', '\n07\n'), []),
      /the second line of the checkpoint must be the number of log lines/,
    ],
    ['a short root', () => readCheckpoint(sampleNote.replace(/gMZ8gx/, ''), []), /SHA-256/],
    ['an unknown occasion', () => readCheckpoint(sampleNote.replace('\nend ', '\nstop '), []), /must be OCCASION TIME/],
    [
      'an additional line',
      () => readCheckpoint(sampleNote.replace('\n\n', '\nmore\n\n'), []),
      /an unknown line after the public key of the run/,
    ],
    ['a key without its name', () => parseKey('gw+413b88e4'), /such as/],
    [
      'a key with another id',
      () => parseKey(keyText(sampleInstance.key).replace(/\+[0-9a-f]{8}\+/, '+00000000+')),
      /ID does not match NAME and BASE64/,
    ],
    ['a key of another type', () => parseKey('gw+413b88e4+AgAA'), /Ed25519/],
    ['another proof version', () => parseProof('c2sp.org/tlog-proof@v2\n'), /tlog-proof@v1/],
    [
      'a proof without a line',
      () => parseProof('c2sp.org/tlog-proof@v1\nextra AAAA\nindex 0\n\n'),
      /must contain the hash of the previous log line, followed by the log line itself/,
    ],
    [
      'a proof without an index',
      () => parseProof(`c2sp.org/tlog-proof@v1\nextra ${'A'.repeat(100)}\n\n`),
      /the third line of the proof must be "index"/,
    ],
    [
      'a proof with too many hashes',
      () => parseProof(`c2sp.org/tlog-proof@v1\nextra ${'A'.repeat(100)}\nindex 0\n${'A\n'.repeat(64)}\n`),
      /the proof has more than 63 hashes/,
    ],
  ];
  for (const [what, read, expected] of forms) t.throws(read, { name: 'InvalidNote', message: expected }, what);
  t.end();
});
