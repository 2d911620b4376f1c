import { createHash, createSecretKey, hash, type KeyObject } from 'node:crypto';
import type { RunEnd } from '../evidence/checkpoint.js';
import { MerkleTree } from '../evidence/merkle-tree.js';
import { decimal, quote, serialise } from './serialise.js';
import { uniqueId } from './unique-id.js';

/** The first line of a hash chain has no previous line. This text takes the place of the previous line's hash. */
const noHash = '0'.repeat(64);

/** Length of the end of each line: `,"hash":"`, 64 hex digits and `"}}`. The hash covers everything before this end. */
export const sealLength = 76;

/**
 * The secret with which the lines of a log are hashed. Null if no secret is configured: in that case, the hash chain
 * detects accidental damage but no attack.
 */
export type LogSecret = KeyObject | null;

/** Converts the bytes of a secret to a key. */
export function logSecretOf(bytes: Buffer): KeyObject {
  return createSecretKey(bytes);
}

/**
 * Name of the hash algorithm of a log with checkpoints, which are signed states of the log. In such a log, each line is
 * also a leaf of a Merkle tree. The hashes need no secret, because the checkpoints are signed.
 */
export const treeAlgorithm = 'rfc6962-sha256';

/** Why a checkpoint line, which describes the hash chain itself, was written to the log. */
export type CheckpointReason = 'start' | 'interval' | 'file-end' | 'file-start' | 'end';

/** The last line before a new chain. If the line belongs to no hash chain, its id, number and hash are null. */
export interface Predecessor {
  /** The id of the hash chain to which this line belongs. */
  readonly id: string | null;
  /** The number of this line in its chain. */
  readonly sequence: number | null;
  /** The hash of this line. */
  readonly hash: string | null;
  /** Number of bytes of an incomplete line after this line. A process that was killed leaves such a fragment. */
  readonly torn: number;
}

/** Converts the end of a run (a hash chain) to the `predecessor` in the first line of the next run. */
export function predecessorOf({ run, size, hash }: RunEnd): Predecessor {
  return { id: run, sequence: size, hash: hash.toString('hex'), torn: 0 };
}

/**
 * Converts the last line that a process found in its log file to a `RunEnd`. Returns null if there is no line, or if
 * the line belongs to no chain.
 * @param predecessor null if the file was empty; undefined if the log is a stream
 */
export function runEndOf(predecessor: Predecessor | null | undefined): RunEnd | null {
  const { id = null, sequence = null, hash = null } = predecessor ?? {};
  if (id === null || sequence === null || hash === null) return null;
  return { run: id, size: sequence, hash: Buffer.from(hash, 'hex') };
}

/** Identifies the process that writes a log. */
export interface LogOrigin {
  /** The version of this product. */
  readonly version: string;
  /** The name of the process, unique among all machines. */
  readonly node: string;
  /** The name of the machine or the pod. */
  readonly host: string;
}

/** The version of the Elastic Common Schema (ECS), which defines the field names of the log. */
export const ecsVersion = '9.4.0';

/** Returns the text with which all lines of a chain begin. The text is ASCII. */
function lineHead(id: string, origin: LogOrigin | null): string {
  const text = (value: string): string => quote(value).replace(/[^ -~]/g, '?');
  const service = origin === null ? '' : `,"version":${text(origin.version)},"node":{"name":${text(origin.node)}}`;
  const host = origin === null ? '' : `"host":{"name":${text(origin.host)}},`;
  return `{"service":{"ephemeral_id":"${id}"${service}},${host}"ecs":{"version":"${ecsVersion}"},`;
}

/** Additional members of a checkpoint line. */
interface CheckpointMembers {
  /**
   * Only in the first line of a chain: the line before the chain, which can be in the previous file. Null if a new
   * process found an empty file. Undefined if a new process writes to a stream.
   */
  readonly predecessor?: Predecessor | null;
  /** In the last line of a chain: the id of the next chain of this process. Undefined if no chain follows. */
  readonly next?: string;
  /**
   * The newest checkpoint for which the registry has signed a receipt, and thus confirmed that it stored the
   * checkpoint. With this copy in the log, an audit detects if the registry has removed the checkpoint.
   */
  readonly note?: string | undefined;
  /** The head (length and Merkle root) of the registry's list of checkpoints, as the registry signed it. */
  readonly head?: string | undefined;
}

/**
 * A hash chain: the lines of one process, or of one of its files. Each line has a number, and its hash covers the hash
 * of the previous line.
 */
export class Chain {
  readonly id = uniqueId();
  /** The Merkle tree over the lines; null if no checkpoints are signed. */
  readonly tree: MerkleTree | null;
  readonly #algorithm: string;
  readonly #hash: LineHash;
  readonly #environment: string;
  #previous = noHash;
  #sequence = 0;

  /** @param secret the secret for the hashes; `treeAlgorithm` for a Merkle tree, whose hashes need no secret */
  constructor(secret: LogSecret | typeof treeAlgorithm, environment: string, origin: LogOrigin | null = null) {
    this.tree = secret === treeAlgorithm ? new MerkleTree() : null;
    this.#algorithm = typeof secret === 'string' ? secret : secret === null ? 'sha256' : 'hmac-sha256';
    this.#hash = new LineHash(secret, lineHead(this.id, origin));
    this.#environment = environment;
  }

  /** The id of the chain, and the number and the hash of its newest line. */
  get end(): RunEnd {
    return { run: this.id, size: this.#sequence, hash: Buffer.from(this.#previous, 'hex') };
  }

  /**
   * Adds a line to the chain, with its sequence number and its hash.
   * @param line the JSON text of an object; its last member is `event`, a non-empty object
   * @returns the complete line; the buffer is valid until the next line is added
   */
  seal(line: string): Buffer {
    this.#sequence += 1;
    this.#previous = this.#hash.of(this.#previous, line, `,"sequence":${decimal(this.#sequence, 0)}`);
    this.tree?.append(this.#previous);
    return this.#hash.withEnd(`,"hash":"${this.#previous}"}}`);
  }

  /**
   * Adds a checkpoint line, and returns the complete line. The line describes the chain itself and contains the hash of
   * the previous line. So a file that begins with a checkpoint line can be verified without the files before it.
   */
  checkpoint(reason: CheckpointReason, at: number, lost: number, more: CheckpointMembers = {}): Buffer {
    const line = {
      '@timestamp': new Date(at).toISOString(),
      gateway: {
        environment: this.#environment,
        chain: {
          algorithm: this.#algorithm,
          previous: this.#previous,
          lost,
          ...more,
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
const hexDigits = 2 * digestBytes;
/** Offset of the line in the hashed bytes, after the HMAC key block and the previous hash in hex. */
const lineStart = blockBytes + hexDigits;
/** Maximum number of UTF-8 bytes for one UTF-16 code unit. */
const bytesPerCharacter = 3;
const firstBytes = 4_096;
const endBytes = 128;
const comma = 0x2c;

/**
 * Hashes the lines of a chain: with HMAC-SHA-256 if there is a secret, with SHA-256 if there is no secret, or as leaves
 * of a Merkle tree (RFC 6962). The input is the hash of the previous line, then the line itself. The last 76 bytes of
 * the line are not hashed, because they contain the line's own hash.
 * Computes the HMAC with two calls of `hash` (RFC 2104), because Node's Hmac object takes twice as long. Encodes each
 * line once into a buffer and hashes it there, because joining strings would copy the line twice more.
 */
export class LineHash {
  /**
   * The bytes to hash: the HMAC key block with the inner padding, the previous hash, the beginning that all lines
   * share, and the rest of the line.
   */
  #inner = Buffer.allocUnsafeSlow(firstBytes);
  /** The HMAC key block with the outer padding, and the inner digest; null if there is no secret. */
  readonly #outer: Buffer | null;
  /**
   * Offset at which hashing starts if there is no secret: the offset of the previous hash. A leaf of a Merkle tree
   * starts one byte earlier, with a zero byte (RFC 6962).
   */
  readonly #from: number;
  /** The secret of the HMAC; null without a secret; `treeAlgorithm` for a Merkle tree. */
  readonly secret: LogSecret | typeof treeAlgorithm;
  /** Offset of the first byte after the beginning that all lines share. */
  readonly #headEnd: number;
  #length = 0;

  /**
   * @param secret the secret of the HMAC; `treeAlgorithm` for a Merkle tree, whose hashes need no secret
   * @param head the beginning that all lines share, in ASCII: an open brace, at least one member and a comma, such as
   *   `{"a":1,`
   */
  constructor(secret: LogSecret | typeof treeAlgorithm, head = '') {
    this.secret = secret;
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
   * Hashes a line that is about to be written: the shared beginning, then `members` without its first brace and its
   * last two braces, then `more`. The rest of the line is not hashed; `withEnd` appends it.
   * @param members the JSON text of an object whose last member is an object
   * @param more further members of this inner object, in ASCII, with a leading comma
   * @returns the hash in lower-case hex
   */
  of(previous: string, members: string, more: string): string {
    // The shared beginning ends with a comma. Writing `members`, which begins with a brace, overwrites this comma. So
    // the comma is then written over the brace.
    const start = this.#headEnd - 1;
    this.#makeRoom(start + members.length * bytesPerCharacter + more.length + endBytes);
    const inner = this.#inner;
    inner.write(previous, blockBytes, 'latin1');
    const membersEnd = start + inner.write(members, start, 'utf8') - '}}'.length;
    inner[start] = comma;
    this.#length = membersEnd + inner.write(more, membersEnd, 'latin1');
    return this.#digest();
  }

  /**
   * Hashes a line that was read from a log.
   * @param previous the hash of the previous line
   * @param line the whole line, including the last 76 bytes, which are not hashed
   */
  ofLine(previous: string, line: Buffer): string {
    this.#makeRoom(lineStart + line.length);
    // Pads the hash to 64 digits. Otherwise a shorter hash in a log would leave digits of an earlier hash in place.
    this.#inner.write(previous.padEnd(hexDigits).slice(0, hexDigits), blockBytes, 'latin1');
    this.#length = lineStart + line.copy(this.#inner, lineStart, 0, line.length - sealLength);
    return this.#digest();
  }

  #digest(): string {
    if (this.#outer === null) return hash('sha256', this.#inner.subarray(this.#from, this.#length));
    // The digest is a binary string, because creating a Buffer for it takes longer than hashing.
    const digest = hash('sha256', this.#inner.subarray(0, this.#length), 'binary');
    this.#outer.write(digest, blockBytes, 'binary');
    return hash('sha256', this.#outer);
  }

  /**
   * Appends an ASCII text to the hashed line, and returns the complete line. The buffer is valid until the next line is
   * hashed.
   */
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
