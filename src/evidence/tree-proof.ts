import { type LeafRange, MerkleTree, nodeHash, type TreeGrowth } from './merkle-tree.js';

/**
 * Returns the index at which RFC 6962 splits a range of leaves in two: the first leaf of the right part. The size of
 * the left part is the largest power of two below the size of the whole range.
 */
function middleOf({ from, to }: LeafRange): number {
  let half = 1;
  while (2 * half < to - from) half *= 2;
  return from + half;
}

/**
 * Returns the leaf ranges of the sibling subtrees in an inclusion proof, from the leaf to the root (RFC 6962, section
 * 2.1.1).
 */
function rangesOfPath(index: number, { from, to }: LeafRange): LeafRange[] {
  if (to - from === 1) return [];
  const middle = middleOf({ from, to });
  return index < middle
    ? [...rangesOfPath(index, { from, to: middle }), { from: middle, to }]
    : [...rangesOfPath(index, { from: middle, to }), { from, to: middle }];
}

/** Builds the inclusion proof of one leaf. Needs all leaves of the tree, one by one, in order. */
export class InclusionPath {
  readonly #index: number;
  readonly #parts: readonly { readonly range: LeafRange; readonly tree: MerkleTree }[];
  #next = 0;

  /**
   * @param index the index of the leaf, from 0
   * @param size the number of leaves of the tree, greater than the index
   */
  constructor(index: number, size: number) {
    this.#index = index;
    this.#parts = rangesOfPath(index, { from: 0, to: size }).map((range) => ({ range, tree: new MerkleTree() }));
  }

  /** Adds the next leaf of the tree. @param leaf its hash in hex */
  take(leaf: string): void {
    const index = this.#next;
    this.#next += 1;
    if (index === this.#index) return;
    this.#parts.find(({ range: { from, to } }) => from <= index && index < to)?.tree.append(leaf);
  }

  /** Returns the hashes of the proof, from the leaf to the root. Call this method after `take` got the last leaf. */
  hashes(): Buffer[] {
    return this.#parts.map(({ tree }) => tree.root());
  }
}

/**
 * Computes the root of a tree from an inclusion proof.
 * @param leaf the hash of the leaf, in hex
 * @param path the hashes of the proof, from the leaf to the root
 * @returns null if the index or the number of hashes is impossible for a tree of this size
 */
export function rootOfPath(index: number, size: number, leaf: string, path: readonly Buffer[]): Buffer | null {
  if (index >= size) return null;
  const ranges = rangesOfPath(index, { from: 0, to: size });
  if (ranges.length !== path.length) return null;
  const root = path
    .map((sibling) => sibling.toString('hex'))
    .reduce(
      (below, sibling, level) =>
        (ranges[level]?.from ?? 0) > index ? nodeHash(below, sibling) : nodeHash(sibling, below),
      leaf,
    );
  return Buffer.from(root, 'hex');
}

/**
 * Returns the leaf ranges whose roots form the consistency proof (RFC 6962, section 2.1.2) between two trees. The older
 * tree has the first `older` leaves of the newer tree. The proof omits a root that the verifier knows.
 * @param isKnown whether the verifier knows the root over the older leaves in this range
 */
function rangesOfGrowth(older: number, { from, to }: LeafRange, isKnown: boolean): LeafRange[] {
  if (older === to) return isKnown ? [] : [{ from, to }];
  const middle = middleOf({ from, to });
  return older <= middle
    ? [...rangesOfGrowth(older, { from, to: middle }, isKnown), { from: middle, to }]
    : [...rangesOfGrowth(older, { from: middle, to }, false), { from, to: middle }];
}

/**
 * Builds the consistency proof that the newer tree begins with the leaves of the older tree. The proof is empty if the
 * older tree is empty.
 */
export function consistencyProof({ before, added }: TreeGrowth): Buffer[] {
  if (before.to === 0) return [];
  return rangesOfGrowth(before.to, { from: 0, to: added.to }, true).map((range) =>
    Buffer.from((range.to <= before.to ? before : added).rootOf(range), 'hex'),
  );
}

/** The number of leaves and the root of a signed tree. */
export interface TreeState {
  readonly size: number;
  readonly root: Buffer;
}

/**
 * Verifies a consistency proof: whether the newer tree begins with the leaves of the older tree (RFC 9162, section
 * 2.1.4.2).
 */
export function isConsistent(older: TreeState, newer: TreeState, proof: readonly Buffer[]): boolean {
  if (older.size > newer.size) return false;
  if (older.size === 0) return proof.length === 0;
  const hashes = proof.map((hash) => hash.toString('hex'));
  if (hashes.length !== rangesOfGrowth(older.size, { from: 0, to: newer.size }, true).length) return false;
  const [olderRoot, newerRoot] = rootsOfGrowth(older, { from: 0, to: newer.size }, true, hashes);
  return older.root.toString('hex') === olderRoot && newer.root.toString('hex') === newerRoot;
}

/**
 * Uses a consistency proof to compute two roots over a range of leaves: of the older tree and of the newer tree.
 * Removes the used hashes from `hashes`.
 */
function rootsOfGrowth(
  older: TreeState,
  { from, to }: LeafRange,
  isKnown: boolean,
  hashes: string[],
): readonly [older: string, newer: string] {
  if (older.size === to) {
    const root = isKnown ? older.root.toString('hex') : (hashes.shift() ?? '');
    return [root, root];
  }
  const middle = middleOf({ from, to });
  if (older.size <= middle) {
    const [before, now] = rootsOfGrowth(older, { from, to: middle }, isKnown, hashes);
    return [before, nodeHash(now, hashes.shift() ?? '')];
  }
  const [before, now] = rootsOfGrowth(older, { from: middle, to }, false, hashes);
  const left = hashes.shift() ?? '';
  return [nodeHash(left, before), nodeHash(left, now)];
}
