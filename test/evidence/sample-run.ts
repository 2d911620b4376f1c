import { createPrivateKey, hash } from 'node:crypto';
import { leafHash, MerkleTree } from '../../src/evidence/merkle-tree.js';
import { runKeyName } from '../../src/evidence/checkpoint.js';
import { NoteSigner } from '../../src/evidence/signed-note.js';

/** The id of the run (the log of one process) in the documented example. */
export const sampleRun = '01M7WJMG35EDK4R664YCSW956W';
export const sampleName = 'gw.example/a';

const pkcs8Head = Buffer.from('302e020100300506032b657004220420', 'hex');

/** A signer whose private key is the SHA-256 of a word. */
export function signerOf(name: string, word: string): NoteSigner {
  const der = Buffer.concat([pkcs8Head, hash('sha256', word, 'buffer')]);
  return new NoteSigner(name, createPrivateKey({ key: der, format: 'der', type: 'pkcs8' }));
}

export const sampleInstance = signerOf(sampleName, 'instance');
export const sampleRunSigner = signerOf(runKeyName(sampleName, sampleRun), 'run');

/** Returns the first `count` lines of the documented example, their leaf hashes, and the Merkle tree over them. */
export function sampleLines(count: number): { lines: string[]; leaves: string[]; tree: MerkleTree } {
  const [lines, leaves, tree] = [[] as string[], [] as string[], new MerkleTree()];
  let previous = '0'.repeat(64);
  for (let n = 1; n <= count; n += 1) {
    const text = `{"service":{"ephemeral_id":"${sampleRun}"},"event":{"id":"${n}","sequence":${n}`;
    previous = leafHash(previous, text);
    tree.append(previous);
    lines.push(`${text},"hash":"${previous}"}}`);
    leaves.push(previous);
  }
  return { lines, leaves, tree };
}

/** The example's checkpoint at its seventh line. */
export const sampleNote = `gw.example/a/01M7WJMG35EDK4R664YCSW956W
7
gMZ8gxteOdOmIY1JvgPDp8OylsPP2TajvE08vLPh8yo=
end 2026-11-20T10:01:00.000Z
key gw.example/a/01M7WJMG35EDK4R664YCSW956W+413b88e4+AZl/xNytE5dZTFj0JkcmRSOwar7mGpWQmkTKC4uyXH4N

— gw.example/a Lu2JTC1pyd4DbBEF4oUY6DvNZsZhUEXs6xf4G88gUJPwv7ZqyD/TI3mvthqWV1ZNdhAxzcMMHNTj1M4wAB16WhoVvgQ=
— gw.example/a/01M7WJMG35EDK4R664YCSW956W QTuI5HQ++ZgOnoHwtZK1SWgbIuvwUCympQZlmFPz5uIg1PyxqZ8I84tv904CCYUIH1ZwwiitIZj1cl5ITLh4S3uGOAo=
`;
