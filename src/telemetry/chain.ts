import { createHash, createSecretKey, hash, type KeyObject } from 'node:crypto';
import type { RunEnd } from '../evidence/checkpoint.js';
import { MerkleTree } from '../evidence/merkle-tree.js';
import { decimal, quote, serialise } from './serialise.js';
import { uniqueId } from './unique-id.js';

/** The previous hash of a chain's first line. */
const noHash = '0'.repeat(64);

/** Length of the end of a sealed line: `,"hash":"`, 64 hex digits, `"}}`. The hash covers everything before it. */
export const sealLength = 76;

/** The secret of a log, as a key. Null: without a secret, a chain reveals only accidental damage. */
export type LogSecret = KeyObject | null;

/** Makes a key from the bytes of a secret. */
export function logSecretOf(bytes: Buffer): KeyObject {
  return createSecretKey(bytes);
}

/** Algorithm of a log whose lines are also the leaves of a tree with signed checkpoints. Its hashes need no secret. */
export const treeAlgorithm = 'rfc6962-sha256';

/** Why a checkpoint was written. */
export type CheckpointReason = 'start' | 'interval' | 'file-end' | 'file-start' | 'end';

/** The last line of a file to which a new process appends, as far as it is readable. */
export interface Predecessor {
  /** Chain id, number and hash of that line; all null when it belongs to no chain. */
  readonly id: string | null;
  readonly sequence: number | null;
  readonly hash: string | null;
  /** Bytes after it that form no complete line: the unfinished write of a killed process. */
  readonly torn: number;
}

/** The end of a run, as the next process or the next file finds it. */
export function predecessorOf({ run, size, hash }: RunEnd): Predecessor {
  return { id: run, sequence: size, hash: hash.toString('hex'), torn: 0 };
}

/** The end of the chain that a process found; null without one. */
export function runEndOf(predecessor: Predecessor | null | undefined): RunEnd | null {
  const { id = null, sequence = null, hash = null } = predecessor ?? {};
  if (id === null || sequence === null || hash === null) return null;
  return { run: id, size: sequence, hash: Buffer.from(hash, 'hex') };
}

/** The process that writes a log. */
export interface LogOrigin {
  /** The product's version. */
  readonly version: string;
  /** Identifies the process among those of all machines. */
  readonly node: string;
  /** Name of the machine or the pod. */
  readonly host: string;
}

/** Version of the Elastic Common Schema, whose field names the log uses. */
const ecsVersion = '9.4.0';

/** The beginning of each line of a chain, in ASCII. */
function lineHead(id: string, origin: LogOrigin | null): string {
  const text = (value: string): string => quote(value).replace(/[^ -~]/g, '?');
  const service = origin === null ? '' : `,"version":${text(origin.version)},"node":{"name":${text(origin.node)}}`;
  const host = origin === null ? '' : `"host":{"name":${text(origin.host)}},`;
  return `{"service":{"ephemeral_id":"${id}"${service}},${host}"ecs":{"version":"${ecsVersion}"},`;
}

/** Further members of a checkpoint. */
interface CheckpointMembers {
  /** At a start: the end of the log before it. Undefined for a stream, null for an empty file. */
  readonly predecessor?: Predecessor | null;
  /** At the end of a file: the chain of the next file, when each file has a separate chain. */
  readonly next?: string;
  /**
   * The newest signed checkpoint with its receipt, and the head of the registry's list. While these lines are in the
   * log, the registry cannot remove entries unnoticed.
   */
  readonly note?: string | undefined;
  readonly head?: string | undefined;
}

/** The lines of one process, or of one of its files. Each is numbered, and its hash covers the previous hash. */
export class Chain {
  readonly id = uniqueId();
  /** The tree over the lines; null without signed checkpoints. */
  readonly tree: MerkleTree | null;
  readonly #algorithm: string;
  readonly #hash: LineHash;
  readonly #environment: string;
  #previous = noHash;
  #sequence = 0;

  /** @param secret for the hashes of the lines; the tree's algorithm needs no secret */
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
   * @param line the JSON text of an object whose last member is `event`, an object with at least one member
   * @returns the sealed line, valid until the next call
   */
  seal(line: string): Buffer {
    this.#sequence += 1;
    this.#previous = this.#hash.of(this.#previous, line, `,"sequence":${decimal(this.#sequence, 0)}`);
    this.tree?.append(this.#previous);
    return this.#hash.withEnd(`,"hash":"${this.#previous}"}}`);
  }

  /**
   * Seals a line about the chain itself. It states the previous hash, so a file that begins with it can be verified
   * separately.
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
/** Offset of the line: the secret's block and the previous hash in hex come first. */
const lineStart = blockBytes + hexDigits;
/** The most UTF-8 bytes that one UTF-16 code unit takes. */
const bytesPerCharacter = 3;
const firstBytes = 4_096;
const endBytes = 128;
const comma = 0x2c;

/**
 * Hashes the lines of a chain: HMAC-SHA-256 with a secret, SHA-256 without one, or the hash of a tree's leaf (RFC 6962).
 * A hash, in lower-case hex, covers the previous line's hash, then the line without its last 76 bytes.
 * HMAC is two hashes (RFC 2104): two calls of `hash` cost half as much as a Node Hmac object, once the largest single
 * cost of a line. Each line is written as bytes once and hashed in place; joining texts into a line would copy it twice more.
 */
export class LineHash {
  /** The secret with the inner padding, the previous hash, the head of each line, and the rest of the line. */
  #inner = Buffer.allocUnsafeSlow(firstBytes);
  /** The secret with the outer padding, and the inner digest; null without a secret. */
  readonly #outer: Buffer | null;
  /**
   * Where the hashed bytes begin without a secret. A tree's leaf has a zero byte first (RFC 6962), in the block's last
   * byte.
   */
  readonly #from: number;
  /** The secret of the HMAC; null without one; or the algorithm of a tree. */
  readonly secret: LogSecret | typeof treeAlgorithm;
  /** Where the head of each line ends. */
  readonly #headEnd: number;
  #length = 0;

  /**
   * @param secret of the HMAC; with the tree's algorithm each hash is that of a leaf, without a secret
   * @param head the beginning of each line, in ASCII: an object's beginning, up to the comma after a member
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
   * Hashes a line, after the previous hash. The line is its head, the members of an object, and an addition to the last
   * member.
   * @param members the JSON text of the object, whose last member is an object
   * @param more the addition to that member, in ASCII
   * @returns lower-case hex
   */
  of(previous: string, members: string, more: string): string {
    // The members are written over the comma that ends the head. That comma then replaces their opening brace.
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
   * Hashes a line that was written.
   * @param previous the hash of the previous line
   * @param line including the last 76 bytes, which are not hashed
   */
  ofLine(previous: string, line: Buffer): string {
    this.#makeRoom(lineStart + line.length);
    // Always 64 digits: a shorter text would leave a part of an earlier hash in place.
    this.#inner.write(previous.padEnd(hexDigits).slice(0, hexDigits), blockBytes, 'latin1');
    this.#length = lineStart + line.copy(this.#inner, lineStart, 0, line.length - sealLength);
    return this.#digest();
  }

  #digest(): string {
    if (this.#outer === null) return hash('sha256', this.#inner.subarray(this.#from, this.#length));
    // A binary string: creating a Buffer for the digest costs more than the hash itself.
    const digest = hash('sha256', this.#inner.subarray(0, this.#length), 'binary');
    this.#outer.write(digest, blockBytes, 'binary');
    return hash('sha256', this.#outer);
  }

  /** The bytes of the hashed line, followed by this ASCII text. Valid until the next line is hashed. */
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
