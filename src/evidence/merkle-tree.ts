import { createHash, hash } from 'node:crypto';

/** Bytes of a SHA-256 digest. */
export const digestBytes = 32;

const leafPrefix = Buffer.of(0x00);
const node = Buffer.alloc(1 + 2 * digestBytes);
node[0] = 0x01;

/** The hash of an entry as a leaf of a tree (RFC 6962, section 2.1). */
export function leafHash(...parts: readonly (string | Buffer)[]): Buffer {
  const digest = createHash('sha256').update(leafPrefix);
  for (const part of parts) digest.update(part);
  return digest.digest();
}

function nodeHash(left: Buffer, right: Buffer): Buffer {
  left.copy(node, 1);
  right.copy(node, 1 + digestBytes);
  return hash('sha256', node, 'buffer');
}

/** The root of a growing list of leaves (RFC 6962, section 2.1). It keeps one hash for each complete subtree, not the leaves. */
export class MerkleTree {
  /** The roots of the complete subtrees, the largest first: one for each bit that is set in the size. */
  readonly #subtrees: Buffer[] = [];
  #size = 0;

  /** How many leaves there are. */
  get size(): number {
    return this.#size;
  }

  /** Appends a leaf, given as its hash. */
  append(leaf: Buffer): void {
    let subtree = leaf;
    for (let rest = this.#size; rest % 2 === 1; rest = (rest - 1) / 2) {
      subtree = nodeHash(this.#subtrees.pop() ?? leaf, subtree);
    }
    this.#subtrees.push(subtree);
    this.#size += 1;
  }

  /** The root over all leaves; SHA-256 of nothing where there are none. */
  root(): Buffer {
    if (this.#subtrees.length === 0) return hash('sha256', '', 'buffer');
    return this.#subtrees.reduceRight((right, left) => nodeHash(left, right));
  }
}

/** Leaves from one index up to, but without, another. */
interface LeafRange {
  readonly from: number;
  readonly to: number;
}

/** The ranges of leaves whose roots are the inclusion proof of a leaf, from the leaf upwards (RFC 6962, section 2.1.1). */
function rangesOfPath(index: number, { from, to }: LeafRange): LeafRange[] {
  if (to - from === 1) return [];
  let half = 1;
  while (2 * half < to - from) half *= 2;
  const middle = from + half;
  return index < middle
    ? [...rangesOfPath(index, { from, to: middle }), { from: middle, to }]
    : [...rangesOfPath(index, { from: middle, to }), { from, to: middle }];
}

/** Collects the inclusion proof of one leaf while all leaves of the tree pass by once, in their order. */
export class InclusionPath {
  readonly #index: number;
  readonly #parts: readonly { readonly range: LeafRange; readonly tree: MerkleTree }[];
  #next = 0;

  /**
   * @param index of the leaf, from 0
   * @param size of the tree, more than the index
   */
  constructor(index: number, size: number) {
    this.#index = index;
    this.#parts = rangesOfPath(index, { from: 0, to: size }).map((range) => ({ range, tree: new MerkleTree() }));
  }

  /** Takes the next leaf, given as its hash. */
  take(leaf: Buffer): void {
    const index = this.#next;
    this.#next += 1;
    if (index === this.#index) return;
    this.#parts.find(({ range: { from, to } }) => from <= index && index < to)?.tree.append(leaf);
  }

  /** The hashes of the proof, from the leaf upwards. To be called when each leaf was taken. */
  hashes(): Buffer[] {
    return this.#parts.map(({ tree }) => tree.root());
  }
}

/**
 * The root to which an inclusion proof leads.
 * @param path the hashes of the proof, from the leaf upwards
 * @returns null where the proof has too many hashes, or too few, for a tree of this size
 */
export function rootOfPath(index: number, size: number, leaf: Buffer, path: readonly Buffer[]): Buffer | null {
  if (index >= size) return null;
  const ranges = rangesOfPath(index, { from: 0, to: size });
  if (ranges.length !== path.length) return null;
  return path.reduce(
    (root, sibling, level) => ((ranges[level]?.from ?? 0) > index ? nodeHash(root, sibling) : nodeHash(sibling, root)),
    leaf,
  );
}
