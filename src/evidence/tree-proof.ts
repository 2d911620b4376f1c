import { type LeafRange, MerkleTree, nodeHash, type TreeGrowth } from './merkle-tree.js';

/** The split point: the left half has the largest power of two below the number of leaves. */
function middleOf({ from, to }: LeafRange): number {
  let half = 1;
  while (2 * half < to - from) half *= 2;
  return from + half;
}

/** The ranges whose roots form the inclusion proof of a leaf, from the leaf upwards (RFC 6962, section 2.1.1). */
function rangesOfPath(index: number, { from, to }: LeafRange): LeafRange[] {
  if (to - from === 1) return [];
  const middle = middleOf({ from, to });
  return index < middle
    ? [...rangesOfPath(index, { from, to: middle }), { from: middle, to }]
    : [...rangesOfPath(index, { from: middle, to }), { from, to: middle }];
}

/** Builds the inclusion proof of one leaf in one pass over all leaves of the tree, in order. */
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

  /** Takes the next leaf. @param leaf its hash in hex */
  take(leaf: string): void {
    const index = this.#next;
    this.#next += 1;
    if (index === this.#index) return;
    this.#parts.find(({ range: { from, to } }) => from <= index && index < to)?.tree.append(leaf);
  }

  /** The hashes of the proof, from the leaf upwards. Call it after the last leaf. */
  hashes(): Buffer[] {
    return this.#parts.map(({ tree }) => tree.root());
  }
}

/**
 * Computes the root from an inclusion proof.
 * @param leaf its hash, in hex
 * @param path the hashes of the proof, from the leaf upwards
 * @returns null if the number of hashes is wrong for a tree of this size
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

/** The ranges of leaves whose roots are the consistency proof of an older size (RFC 6962, section 2.1.2). */
function rangesOfGrowth(older: number, { from, to }: LeafRange, isKnown: boolean): LeafRange[] {
  if (older === to) return isKnown ? [] : [{ from, to }];
  const middle = middleOf({ from, to });
  return older <= middle
    ? [...rangesOfGrowth(older, { from, to: middle }, isKnown), { from: middle, to }]
    : [...rangesOfGrowth(older, { from: middle, to }, false), { from, to: middle }];
}

/** The consistency proof that the newer tree begins with the leaves of the older one. Empty for an empty older tree. */
export function consistencyProof({ before, added }: TreeGrowth): Buffer[] {
  if (before.to === 0) return [];
  return rangesOfGrowth(before.to, { from: 0, to: added.to }, true).map((range) =>
    Buffer.from((range.to <= before.to ? before : added).rootOf(range), 'hex'),
  );
}

/** The state of a signed tree: its number of leaves and its root. */
export interface TreeState {
  readonly size: number;
  readonly root: Buffer;
}

/**
 * Whether a consistency proof shows that the newer tree begins with the leaves of the older one (RFC 9162, section
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

/** The roots of the older and the newer tree over a range, computed from a proof. Removes the hashes that it uses. */
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
