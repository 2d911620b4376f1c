import { hash } from 'node:crypto';

/** Bytes of a SHA-256 digest. */
export const digestBytes = 32;

const hexDigits = 2 * digestBytes;
/** Behind the zero of a leaf, and the hash of the line before. */
const textStart = 1 + hexDigits;
/** The most bytes that a character of a string (UTF-16) takes in UTF-8. */
const bytesPerCharacter = 3;
let leaf = Buffer.alloc(4_096);
const node = Buffer.alloc(1 + 2 * digestBytes);
node[0] = 0x01;

/**
 * The hash of a line as a leaf of a tree (RFC 6962, section 2.1), in lower-case hex. A log of a million lines is hashed line by line: the
 * bytes are put together in place, because an object of Node's for each hash would take as long as the hash.
 * @param previous the hash of the line before, in 64 hex digits
 * @param text the line without what it says of its own hash
 */
export function leafHash(previous: string, text: string | Buffer): string {
  const most = textStart + text.length * bytesPerCharacter;
  if (most > leaf.length) leaf = Buffer.alloc(2 * most);
  leaf.write(previous.padEnd(hexDigits).slice(0, hexDigits), 1, 'latin1');
  const length = typeof text === 'string' ? leaf.write(text, textStart, 'utf8') : text.copy(leaf, textStart);
  return hash('sha256', leaf.subarray(0, textStart + length));
}

function nodeHash(left: string, right: string): string {
  node.write(left, 1, 'hex');
  node.write(right, 1 + digestBytes, 'hex');
  return hash('sha256', node);
}

/**
 * The root of a growing list of leaves (RFC 6962, section 2.1). It keeps one hash for each complete subtree, not the leaves. Hashes are in
 * lower-case hex: to make buffers of them takes longer than to read them.
 */
export class MerkleTree {
  /** The roots of the complete subtrees, the largest first: one for each bit that is set in the size. */
  readonly #subtrees: string[] = [];
  #size = 0;

  /** How many leaves there are. */
  get size(): number {
    return this.#size;
  }

  /** Appends a leaf, given as its hash in hex. */
  append(leaf: string): void {
    let subtree = leaf;
    for (let rest = this.#size; rest % 2 === 1; rest = (rest - 1) / 2) {
      subtree = nodeHash(this.#subtrees.pop() ?? leaf, subtree);
    }
    this.#subtrees.push(subtree);
    this.#size += 1;
  }

  /** The root over all leaves; SHA-256 of nothing where there are none. */
  root(): Buffer {
    const [first] = this.#subtrees;
    const root =
      first === undefined ? hash('sha256', '') : this.#subtrees.reduceRight((right, left) => nodeHash(left, right));
    return Buffer.from(root, 'hex');
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

  /** Takes the next leaf, given as its hash in hex. */
  take(leaf: string): void {
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
 * @param leaf its hash, in hex
 * @param path the hashes of the proof, from the leaf upwards
 * @returns null where the proof has too many hashes, or too few, for a tree of this size
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
