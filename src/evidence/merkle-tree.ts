import { hash } from 'node:crypto';

/** Bytes of a SHA-256 digest. */
export const digestBytes = 32;

const hexDigits = 2 * digestBytes;
/** Offset of the text: it follows the zero byte of a leaf and the hash of the previous line. */
const textStart = 1 + hexDigits;
/** Maximum UTF-8 bytes for one UTF-16 code unit. */
const bytesPerCharacter = 3;
let leaf = Buffer.alloc(4_096);
const node = Buffer.alloc(1 + 2 * digestBytes);
node[0] = 0x01;

/**
 * The leaf hash of a line (RFC 6962, section 2.1), in lower-case hex. Assembles the bytes in a reused buffer: a Hash
 * object per line would take as long as the hash itself, and a log has millions of lines.
 * @param previous the hash of the previous line, 64 hex digits
 * @param text the line without its seal, which contains its own hash
 */
export function leafHash(previous: string, text: string | Buffer): string {
  const most = textStart + text.length * bytesPerCharacter;
  if (most > leaf.length) leaf = Buffer.alloc(2 * most);
  leaf.write(previous.padEnd(hexDigits).slice(0, hexDigits), 1, 'latin1');
  const length = typeof text === 'string' ? leaf.write(text, textStart, 'utf8') : text.copy(leaf, textStart);
  return hash('sha256', leaf.subarray(0, textStart + length));
}

/** The leaf hash of an entry (RFC 6962, section 2.1), in lower-case hex. */
export function entryHash(entry: string): string {
  return hash('sha256', `\0${entry}`);
}

function nodeHash(left: string, right: string): string {
  node.write(left, 1, 'hex');
  node.write(right, 1 + digestBytes, 'hex');
  return hash('sha256', node);
}

/** A range of leaves: `from` inclusive, `to` exclusive. */
interface LeafRange {
  readonly from: number;
  readonly to: number;
}

/** The widths of the fewest complete subtrees that cover these leaves, from left to right. */
function* widthsOf({ from, to }: LeafRange): Generator<number> {
  for (let at = from; at < to;) {
    let width = 1;
    while (at % (2 * width) === 0 && at + 2 * width <= to) width *= 2;
    yield width;
    at += width;
  }
}

/**
 * Consecutive leaves of a growing tree. Stores one hash per complete subtree, not the leaves. Hashes are lower-case hex
 * strings: creating a Buffer per hash takes longer than parsing the hex.
 */
export class MerkleRange {
  /** The index of the first leaf. */
  readonly from: number;
  readonly #subtrees: string[] = [];
  #to: number;

  constructor(from: number) {
    [this.from, this.#to] = [from, from];
  }

  /** Restores a stored tree. @param subtrees roots of its complete subtrees from left to right, in hex */
  static ofTree(size: number, subtrees: readonly string[]): MerkleRange {
    const tree = new MerkleRange(0);
    [...widthsOf({ from: 0, to: size })].forEach((width, index) => {
      tree.append(subtrees[index] ?? '', width);
    });
    return tree;
  }

  /** The roots of its complete subtrees from left to right, in hex. */
  get subtrees(): readonly string[] {
    return this.#subtrees;
  }

  /** The index after the last leaf. */
  get to(): number {
    return this.#to;
  }

  /** Appends a complete subtree, or a leaf if the width is 1. @param root in hex */
  append(root: string, width = 1): void {
    let subtree = root;
    const to = this.#to + width;
    for (let index = this.#to / width, both = 2 * width; index % 2 === 1 && to - both >= this.from; both *= 2) {
      subtree = nodeHash(this.#subtrees.pop() ?? root, subtree);
      index = (index - 1) / 2;
    }
    this.#subtrees.push(subtree);
    this.#to = to;
  }

  /** This range extended by the range that follows it. */
  with(next: MerkleRange): MerkleRange {
    const both = new MerkleRange(this.from);
    for (const range of [this, next]) for (const [root, width] of range.#parts()) both.append(root, width);
    return both;
  }

  /**
   * The root over a range of leaves, in hex. The range must be a complete subtree or reach to the end. SHA-256 of the
   * empty string for an empty range.
   */
  rootOf({ from, to }: LeafRange): string {
    const roots: string[] = [];
    let at = this.from;
    for (const [root, width] of this.#parts()) {
      if (at >= from && at < to) roots.push(root);
      at += width;
    }
    const last = roots.pop();
    return last === undefined ? hash('sha256', '') : roots.reduceRight((right, left) => nodeHash(left, right), last);
  }

  *#parts(): Generator<[root: string, width: number]> {
    let index = 0;
    for (const width of widthsOf({ from: this.from, to: this.#to })) yield [this.#subtrees[index++] ?? '', width];
  }
}

/** The growth of a tree: its leaves at the previous snapshot, and the leaves added since. */
export interface TreeGrowth {
  readonly before: MerkleRange;
  readonly added: MerkleRange;
}

/** A growing list of leaves (RFC 6962, section 2.1). */
export class MerkleTree {
  #before = new MerkleRange(0);
  #added = new MerkleRange(0);

  /** The number of leaves. */
  get size(): number {
    return this.#added.to;
  }

  /** Appends a leaf. @param leaf its hash in hex */
  append(leaf: string): void {
    this.#added.append(leaf);
  }

  /** The root over all leaves; SHA-256 of the empty string without leaves. */
  root(): Buffer {
    const all = this.#before.to === 0 ? this.#added : this.#before.with(this.#added);
    return Buffer.from(all.rootOf({ from: 0, to: all.to }), 'hex');
  }

  /** Returns the growth since the previous call, and starts a new snapshot. */
  takeGrowth(): TreeGrowth {
    const growth = { before: this.#before, added: this.#added };
    this.#before = growth.before.with(growth.added);
    this.#added = new MerkleRange(this.#before.to);
    return growth;
  }
}

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
