import { createHash, createHmac, createSecretKey, hash, type KeyObject } from 'node:crypto';
import type { RunEnd } from '../evidence/checkpoint.js';
import { leafHash, MerkleTree } from '../evidence/merkle-tree.js';
import { decimal, quote, serialise } from './serialise.js';
import { uniqueId } from './unique-id.js';

/** What stands in for the hash before the first line of a chain. */
const noHash = '0'.repeat(64);

/** How a sealed line ends: `,"hash":"`, 64 hex digits, `"}}`. Everything before is what is hashed. */
export const sealLength = 76;

/** The secret of a log, as a key; null where there is none, and a chain shows accidental damage alone. */
export type LogSecret = KeyObject | null;

/** Makes a secret's bytes into what hashes take. */
export function logSecretOf(bytes: Buffer): KeyObject {
  return createSecretKey(bytes);
}

/**
 * The hash of a line: HMAC-SHA-256 under the log's secret, SHA-256 without one, or that of a leaf of a tree (RFC 6962), of the hash of
 * the line before it and the line's own bytes without the last 76. In lower-case hex.
 */
export function chainHash(secret: LogSecret | typeof treeAlgorithm, previous: string, text: string | Buffer): string {
  if (secret === treeAlgorithm) return leafHash(previous, text);
  const digest = secret === null ? createHash('sha256') : createHmac('sha256', secret);
  return digest.update(previous).update(text).digest('hex');
}

/** The algorithm of a log whose lines are the leaves of a tree too, of which checkpoints are signed. Their hashes need no secret. */
export const treeAlgorithm = 'rfc6962-sha256';

/** Why a checkpoint stands where it does. */
export type CheckpointReason = 'start' | 'interval' | 'file-end' | 'file-start' | 'end';

/** The last line of a file to which a new process appends, as far as it can be read. */
export interface Predecessor {
  /** The chain, the number and the hash of that line; all null where it is no line of a chain. */
  readonly id: string | null;
  readonly sequence: number | null;
  readonly hash: string | null;
  /** Bytes behind it that are no whole line: what a process that was killed had begun. */
  readonly torn: number;
}

/** The line that the next process finds, or goes on from in another file. */
export function predecessorOf({ run, size, hash }: RunEnd): Predecessor {
  return { id: run, sequence: size, hash: hash.toString('hex'), torn: 0 };
}

/** The line of a chain that a process found; null where it found none. */
export function lineFoundBy(predecessor: Predecessor | null | undefined): RunEnd | null {
  const { id = null, sequence = null, hash = null } = predecessor ?? {};
  if (id === null || sequence === null || hash === null) return null;
  return { run: id, size: sequence, hash: Buffer.from(hash, 'hex') };
}

/** Which process writes a log. */
export interface LogOrigin {
  /** The product's version. */
  readonly version: string;
  /** Names the process among those of all machines. */
  readonly node: string;
  /** The machine's name, or the pod's. */
  readonly host: string;
}

/** Of the Elastic Common Schema, whose field names are used. */
const ecsVersion = '9.4.0';

/** What each line of a chain begins with, in ASCII. */
function lineHead(id: string, origin: LogOrigin | null): string {
  const text = (value: string): string => quote(value).replace(/[^ -~]/g, '?');
  const service = origin === null ? '' : `,"version":${text(origin.version)},"node":{"name":${text(origin.node)}}`;
  const host = origin === null ? '' : `"host":{"name":${text(origin.host)}},`;
  return `{"service":{"ephemeral_id":"${id}"${service}},${host}"ecs":{"version":"${ecsVersion}"},`;
}

/** What a checkpoint of a chain's beginning or end names besides. */
interface Neighbours {
  /** Of a beginning: what the log ended with. Undefined where lines go to a stream, null where the file was empty. */
  readonly predecessor?: Predecessor | null;
  /** Of the end of a file: the chain in the next one, where each file has its own. */
  readonly next?: string;
}

/** The lines of one process, or of one of its files: each numbered, and hashed together with the hash of the one before it. */
export class Chain {
  readonly id = uniqueId();
  /** The tree over the lines; null where none is kept. */
  readonly tree: MerkleTree | null;
  readonly #algorithm: string;
  readonly #hash: LineHash;
  readonly #environment: string;
  #previous = noHash;
  #sequence = 0;

  /** @param secret what the lines are hashed under; or the tree's algorithm, for which there is none */
  constructor(secret: LogSecret | typeof treeAlgorithm, environment: string, origin: LogOrigin | null = null) {
    this.tree = secret === treeAlgorithm ? new MerkleTree() : null;
    this.#algorithm = typeof secret === 'string' ? secret : secret === null ? 'sha256' : 'hmac-sha256';
    this.#hash = new LineHash(secret, lineHead(this.id, origin));
    this.#environment = environment;
  }

  /** The newest line. */
  get end(): RunEnd {
    return { run: this.id, size: this.#sequence, hash: Buffer.from(this.#previous, 'hex') };
  }

  /**
   * Makes a line the next of the chain.
   * @param line the text of a JSON object whose last member is `event`, an object with at least one member
   * @returns its bytes, until the next line is made
   */
  seal(line: string): Buffer {
    this.#sequence += 1;
    this.#previous = this.#hash.of(this.#previous, line, `,"sequence":${decimal(this.#sequence, 0)}`);
    this.tree?.append(this.#previous);
    return this.#hash.withEnd(`,"hash":"${this.#previous}"}}`);
  }

  /** A line of the chain's own. It tells the hash before it, so that a file that begins with it can be verified by itself. */
  checkpoint(reason: CheckpointReason, at: number, lost: number, { predecessor, next }: Neighbours = {}): Buffer {
    const line = {
      '@timestamp': new Date(at).toISOString(),
      gateway: {
        environment: this.#environment,
        chain: {
          algorithm: this.#algorithm,
          previous: this.#previous,
          lost,
          predecessor,
          next,
        },
      },
      event: {
        id: uniqueId(),
        dataset: 'gateway.access',
        kind: 'state',
        category: ['process'],
        type: ['info'],
        action: 'checkpoint',
        reason,
      },
    };
    return this.seal(serialise(line));
  }
}

const blockBytes = 64;
const digestBytes = 32;
/** Behind the secret and the hash of the line before, in hex. */
const lineStart = blockBytes + 2 * digestBytes;
/** The most bytes that a character of a string (UTF-16) takes in UTF-8. */
const bytesPerCharacter = 3;
const firstBytes = 4_096;
const endBytes = 128;
const comma = 0x2c;

/**
 * The hashes of the lines of a chain, as `chainHash` makes them one by one. A line is written as bytes once, and hashed
 * where it lies: HMAC is two hashes (RFC 2104), and two calls of `hash` cost half of what an object of Node's does, which
 * was the largest single cost of a line. Nor are texts put together into a line first, which would copy it twice more.
 */
export class LineHash {
  /** The secret with the inner padding, the hash before, what each line begins with, and the rest of the line. */
  #inner = Buffer.allocUnsafeSlow(firstBytes);
  /** The secret with the outer padding, and the inner digest; null where there is no secret. */
  readonly #outer: Buffer | null;
  /** Where what is hashed begins without a secret: a leaf of a tree has a zero before it (RFC 6962), in the block's last byte. */
  readonly #from: number;
  /** Where what each line begins with ends. */
  readonly #headEnd: number;
  #length = 0;

  /**
   * @param secret or the tree's algorithm: then each hash is that of a leaf, under no secret
   * @param head what each line begins with, in ASCII: the beginning of an object, up to the comma behind a member
   */
  constructor(secret: LogSecret | typeof treeAlgorithm, head: string) {
    const isSecret = secret !== null && secret !== treeAlgorithm;
    this.#outer = isSecret ? Buffer.alloc(blockBytes + digestBytes) : null;
    this.#from = secret === treeAlgorithm ? blockBytes - 1 : blockBytes;
    this.#inner[blockBytes - 1] = 0;
    const key = isSecret ? keyBlock(secret.export()) : Buffer.alloc(0);
    for (const [index, byte] of key.entries()) {
      this.#inner[index] = byte ^ 0x36;
      if (this.#outer !== null) this.#outer[index] = byte ^ 0x5c;
    }
    this.#headEnd = lineStart + this.#inner.write(head, lineStart, 'latin1');
  }

  /**
   * The hash of a line, behind the hash of the line before it, in lower-case hex. The line is its head, the members of an
   * object, and what goes on in the last of them.
   * @param members the text of the object, the last member of which is an object too
   * @param more what stands behind that one's members, in ASCII
   */
  of(previous: string, members: string, more: string): string {
    const start = this.#headEnd - 1; // the object's own brace comes to stand where the head has its comma
    this.#makeRoom(start + members.length * bytesPerCharacter + more.length + endBytes);
    const inner = this.#inner;
    inner.write(previous, blockBytes, 'latin1');
    const membersEnd = start + inner.write(members, start, 'utf8') - '}}'.length;
    inner[start] = comma;
    this.#length = membersEnd + inner.write(more, membersEnd, 'latin1');
    if (this.#outer === null) return hash('sha256', inner.subarray(this.#from, this.#length));
    // Not as a buffer, which costs more to make than the hash itself.
    const digest = hash('sha256', inner.subarray(0, this.#length), 'binary');
    this.#outer.write(digest, blockBytes, 'binary');
    return hash('sha256', this.#outer);
  }

  /** The bytes of the line that was hashed, with this ASCII text behind it, until the next one is. */
  withEnd(end: string): Buffer {
    const length = this.#length + this.#inner.write(end, this.#length, 'latin1');
    return this.#inner.subarray(lineStart, length);
  }

  #makeRoom(bytes: number): void {
    if (bytes <= this.#inner.length) return;
    const larger = Buffer.allocUnsafeSlow(2 * bytes);
    this.#inner.copy(larger, 0, 0, this.#headEnd);
    this.#inner = larger;
  }
}

function keyBlock(key: Buffer): Buffer {
  const block = Buffer.alloc(blockBytes);
  (key.length > blockBytes ? createHash('sha256').update(key).digest() : key).copy(block);
  return block;
}
