import { leafHash, MerkleTree } from '../../src/evidence/merkle-tree.js';

/** A file of a log with these lines. */
export const fileOf = (lines: readonly string[]): Buffer => Buffer.from(lines.map((line) => `${line}\n`).join(''));

/** Rehashes changed lines. No secret is needed, so any writer of the file can do it. */
export function rehashed(lines: readonly string[]): string[] {
  let previous = '0'.repeat(64);
  return lines.map((line, index) => {
    const text = line.slice(0, -76).replace(/"sequence":\d+$/, `"sequence":${index + 1}`);
    // A checkpoint states the previous hash, so that is forged too.
    const forged = text.replace(/"previous":"[0-9a-f]{64}"/, `"previous":"${previous}"`);
    previous = leafHash(previous, forged);
    return `${forged},"hash":"${previous}"}}`;
  });
}

/** The root of the tree over lines. */
export function rootOf(lines: readonly string[]): Buffer {
  const tree = new MerkleTree();
  for (const line of lines) tree.append(line.slice(-67, -3));
  return tree.root();
}
