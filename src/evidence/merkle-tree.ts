import { hash } from 'node:crypto';

/** Length of a SHA-256 digest in bytes. */
export const digestBytes = 32;

const hexDigits = 2 * digestBytes;
/** Offset of the line in the hashed bytes: a zero byte and the hash of the previous line come first. */
const textStart = 1 + hexDigits;
/** Maximum number of UTF-8 bytes for one UTF-16 code unit. */
const bytesPerCharacter = 3;
let leaf = Buffer.alloc(4_096);
const node = Buffer.alloc(1 + 2 * digestBytes);
node[0] = 0x01;

/**
 * Returns the leaf hash of a line (RFC 6962, section 2.1) in lower-case hex. A log has millions of lines, and creating
 * a Hash object for each line takes as long as hashing the line. So this function creates no Hash object, and uses one
 * buffer for all lines.
 * @param previous the hash of the previous line, 64 hex digits
 * @param text the line without its last 76 bytes, which contain its own hash
 */
export function leafHash(previous: string, text: string | Buffer): string {
  const most = textStart + text.length * bytesPerCharacter;
  if (most > leaf.length) leaf = Buffer.alloc(2 * most);
  leaf.write(previous.padEnd(hexDigits).slice(0, hexDigits), 1, 'latin1');
  const length = typeof text === 'string' ? leaf.write(text, textStart, 'utf8') : text.copy(leaf, textStart);
  return hash('sha256', leaf.subarray(0, textStart + length));
}

/**
 * Returns the leaf hash of an entry in the registry's list of checkpoints (RFC 6962, section 2.1), in lower-case hex.
 */
export function entryHash(entry: string): string {
  return hash('sha256', `\0${entry}`);
}

/**
 * Returns the hash of an inner node (RFC 6962, section 2.1) in lower-case hex.
 * @param left the hash of the left child, in hex
 * @param right the hash of the right child, in hex
 */
export function nodeHash(left: string, right: string): string {
  node.write(left, 1, 'hex');
  node.write(right, 1 + digestBytes, 'hex');
  return hash('sha256', node);
}

/** A range of leaf indexes: `from` is inclusive, `to` is exclusive. */
export interface LeafRange {
  readonly from: number;
  readonly to: number;
}

/**
 * Splits a range of leaves into the fewest complete subtrees. Yields the number of leaves of each subtree, from left to
 * right.
 */
function* widthsOf({ from, to }: LeafRange): Generator<number> {
  for (let at = from; at < to;) {
    let width = 1;
    while (at % (2 * width) === 0 && at + 2 * width <= to) width *= 2;
    yield width;
    at += width;
  }
}

/**
 * Consecutive leaves of a growing Merkle tree. Stores one hash per complete subtree instead of all leaves. Hashes are
 * hex strings, because creating a Buffer per hash takes longer than parsing hex.
 */
export class MerkleRange {
  /** The index of the first leaf. */
  readonly from: number;
  readonly #subtrees: string[] = [];
  #to: number;

  constructor(from: number) {
    [this.from, this.#to] = [from, from];
  }

  /** Restores a tree from storage. @param subtrees the roots of its complete subtrees from left to right, in hex */
  static ofTree(size: number, subtrees: readonly string[]): MerkleRange {
    const tree = new MerkleRange(0);
    [...widthsOf({ from: 0, to: size })].forEach((width, index) => {
      tree.append(subtrees[index] ?? '', width);
    });
    return tree;
  }

  /** The roots of the complete subtrees from left to right, in hex. */
  get subtrees(): readonly string[] {
    return this.#subtrees;
  }

  /** The index after the last leaf. */
  get to(): number {
    return this.#to;
  }

  /**
   * Appends a leaf, or a complete subtree with `width` leaves.
   * @param root the hash of the leaf, or the root of the subtree, in hex
   */
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

  /**
   * Returns a new range with the leaves of this range and of `next`. The range `next` must directly follow this range.
   */
  with(next: MerkleRange): MerkleRange {
    const both = new MerkleRange(this.from);
    for (const range of [this, next]) for (const [root, width] of range.#parts()) both.append(root, width);
    return both;
  }

  /**
   * Returns the Merkle root over a range of leaves, in hex. The range must be a complete subtree or end at the last
   * leaf. The root of an empty range is the SHA-256 of the empty string.
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

/**
 * How a tree has grown since the previous call of `takeGrowth`: the leaves at that call, and the leaves added since
 * then.
 */
export interface TreeGrowth {
  readonly before: MerkleRange;
  readonly added: MerkleRange;
}

/**
 * Number of leaves that are hashed as one batch. Decoding the hex of a whole tree level at once saves a third of the
 * time per node.
 */
const batchLeaves = 256;
const nodesOfLevel = Buffer.alloc((batchLeaves / 2) * node.length);
const nodeInLevel = Array.from({ length: batchLeaves / 2 }, (_, index) =>
  nodesOfLevel.subarray(index * node.length, (index + 1) * node.length),
);

/** Returns the root over a batch of leaves, in hex. The number of leaves must be a power of two and at most 256. */
function rootOfBatch(leaves: readonly string[]): string {
  let level = leaves;
  while (level.length > 1) {
    let text = '';
    for (let index = 0; index < level.length; index += 2) text += `01${level[index] ?? ''}${level[index + 1] ?? ''}`;
    nodesOfLevel.write(text, 'hex');
    level = nodeInLevel.slice(0, level.length / 2).map((bytes) => hash('sha256', bytes));
  }
  return level[0] ?? '';
}

/** A Merkle tree to which leaves are appended (RFC 6962, section 2.1). */
export class MerkleTree {
  #before = new MerkleRange(0);
  #added = new MerkleRange(0);
  /** The newest leaves, which are not yet hashed into `#added`. */
  #pending: string[] = [];

  /** The number of leaves. */
  get size(): number {
    return this.#added.to + this.#pending.length;
  }

  /** Appends a leaf. @param leaf the hash of the leaf in hex */
  append(leaf: string): void {
    this.#pending.push(leaf);
    if (this.size % batchLeaves === 0) this.#hashPending();
  }

  #hashPending(): void {
    const pending = this.#pending;
    this.#pending = [];
    const { to: from } = this.#added;
    for (const width of widthsOf({ from, to: from + pending.length })) {
      const at = this.#added.to - from;
      this.#added.append(rootOfBatch(pending.slice(at, at + width)), width);
    }
  }

  /** Returns the Merkle root over all leaves; the SHA-256 of the empty string if the tree is empty. */
  root(): Buffer {
    this.#hashPending();
    const all = this.#before.to === 0 ? this.#added : this.#before.with(this.#added);
    return Buffer.from(all.rootOf({ from: 0, to: all.to }), 'hex');
  }

  /** Returns how the tree has grown since the previous call of this method; at the first call, since it was empty. */
  takeGrowth(): TreeGrowth {
    this.#hashPending();
    const growth = { before: this.#before, added: this.#added };
    this.#before = growth.before.with(growth.added);
    this.#added = new MerkleRange(this.#before.to);
    return growth;
  }
}
