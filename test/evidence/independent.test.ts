import { execFileSync, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import * as checkpoints from '@sigstore/verify/dist/tlog/checkpoint.js';
import * as merkle from '@sigstore/verify/dist/tlog/merkle.js';
import t from 'tap';
import { InclusionPath, rootOfPath } from '../../src/evidence/tree-proof.js';
import { sampleInstance, sampleLines, sampleNote, sampleRun } from './sample-run.js';

/** The functions of Sigstore that these tests use. Sigstore does not export them publicly, so its version is pinned. */
interface Sigstore {
  verifyCheckpoint: (entry: object, logs: readonly object[]) => { logSize: bigint; logHash: Buffer; origin: string };
  verifyMerkleInclusion: (entry: object, checkpoint: object) => void;
}

const { verifyCheckpoint, verifyMerkleInclusion } = { ...checkpoints, ...merkle } as unknown as Sigstore;

const trusted = [
  { logID: sampleInstance.key.id, baseURL: sampleInstance.key.name, publicKey: sampleInstance.key.publicKey },
];
const entryOf = (envelope: string): object => ({ inclusionProof: { checkpoint: { envelope } } });

t.test('another implementation parses and verifies a checkpoint', (t) => {
  const checkpoint = verifyCheckpoint(entryOf(sampleNote), trusted);
  t.equal(checkpoint.logSize, 7n);
  t.equal(checkpoint.origin, `gw.example/a/${sampleRun}`);
  t.same(checkpoint.logHash, sampleLines(7).tree.root());
  t.throws(() => verifyCheckpoint(entryOf(sampleNote.replace('\n7\n', '\n8\n')), trusted), /signature/);
  t.throws(
    () => verifyCheckpoint(entryOf(sampleNote), [{ ...trusted[0], publicKey: undefined }].slice(1)),
    /signature/,
  );
  t.end();
});

t.test('another implementation accepts the inclusion path of each line in trees up to 70 lines', (t) => {
  const { leaves, lines } = sampleLines(70);
  let count = 0;
  for (let size = 1; size <= leaves.length; size += 1) {
    const { tree } = sampleLines(size);
    for (let index = 0; index < size; index += 1) {
      const path = new InclusionPath(index, size);
      for (const leaf of leaves.slice(0, size)) path.take(leaf);
      const previous = index === 0 ? '0'.repeat(64) : (leaves[index - 1] ?? '');
      const canonicalizedBody = Buffer.from(previous + (lines[index] ?? '').slice(0, -76));
      const hashes = path.hashes();
      verifyMerkleInclusion(
        { canonicalizedBody, inclusionProof: { logIndex: String(index), hashes } },
        { logSize: BigInt(size), logHash: tree.root() },
      );
      count += Number(rootOfPath(index, size, leaves[index] ?? '', hashes)?.equals(tree.root()));
    }
  }
  t.equal(count, (70 * 71) / 2);
  t.end();
});

const withoutOpenssl =
  spawnSync('openssl', ['version']).error !== undefined &&
  'no openssl: SIGNATURES OF CHECKPOINTS ARE NOT TESTED WITH IT';

t.test('openssl verifies the signature of a checkpoint', { skip: withoutOpenssl }, (t) => {
  const directory = t.testdir();
  const [text = '', signatures = ''] = sampleNote.split('\n\n');
  const [, , signature = ''] = (signatures.split('\n')[0] ?? '').split(' ');
  writeFileSync(`${directory}/text`, `${text}\n`);
  writeFileSync(`${directory}/signature`, Buffer.from(signature, 'base64').subarray(4));
  writeFileSync(`${directory}/key.pem`, sampleInstance.key.publicKey.export({ format: 'pem', type: 'spki' }));
  const verify = [
    'pkeyutl',
    '-verify',
    '-pubin',
    '-inkey',
    'key.pem',
    '-rawin',
    '-in',
    'text',
    '-sigfile',
    'signature',
  ];
  t.match(execFileSync('openssl', verify, { cwd: directory, encoding: 'utf8' }), 'Verified Successfully');
  writeFileSync(`${directory}/text`, `${text.replace('\n7\n', '\n8\n')}\n`);
  t.throws(
    () => execFileSync('openssl', verify, { cwd: directory, stdio: 'ignore' }),
    'openssl rejects a changed checkpoint',
  );
  t.end();
});
