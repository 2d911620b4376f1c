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

/** The hash of a node (RFC 6962, section 2.1), in lower-case hex. @param left and right: the hashes of its halves, in hex */
export function nodeHash(left: string, right: string): string {
  node.write(left, 1, 'hex');
  node.write(right, 1 + digestBytes, 'hex');
  return hash('sha256', node);
}

/** A range of leaves: `from` inclusive, `to` exclusive. */
export interface LeafRange {
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

/** Leaves that are hashed together. Decoding the hashes of a whole level at once saves a third of the time per node. */
const batchLeaves = 256;
const nodesOfLevel = Buffer.alloc((batchLeaves / 2) * node.length);
const nodeInLevel = Array.from({ length: batchLeaves / 2 }, (_, index) =>
  nodesOfLevel.subarray(index * node.length, (index + 1) * node.length),
);

/** The root over leaves, in hex. Their number is a power of two, at most 256. */
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

/** A growing list of leaves (RFC 6962, section 2.1). */
export class MerkleTree {
  #before = new MerkleRange(0);
  #added = new MerkleRange(0);
  /** The newest leaves, which are not in `#added` yet. */
  #pending: string[] = [];

  /** The number of leaves. */
  get size(): number {
    return this.#added.to + this.#pending.length;
  }

  /** Appends a leaf. @param leaf its hash in hex */
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

  /** The root over all leaves; SHA-256 of the empty string without leaves. */
  root(): Buffer {
    this.#hashPending();
    const all = this.#before.to === 0 ? this.#added : this.#before.with(this.#added);
    return Buffer.from(all.rootOf({ from: 0, to: all.to }), 'hex');
  }

  /** Returns the growth since the previous call, and starts a new snapshot. */
  takeGrowth(): TreeGrowth {
    this.#hashPending();
    const growth = { before: this.#before, added: this.#added };
    this.#before = growth.before.with(growth.added);
    this.#added = new MerkleRange(this.#before.to);
    return growth;
  }
}
