import { createHash, createHmac, createSecretKey } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { LineHash } from './line-hash.js';
import { decimal, serialise } from './serialise.js';
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
 * The hash of a line: HMAC-SHA-256 under the log's secret, or SHA-256 without one, of the hash of the line before it and
 * the line's own bytes without the last 76. In lower-case hex.
 */
export function chainHash(secret: LogSecret, previous: string, text: string | Buffer): string {
  const digest = secret === null ? createHash('sha256') : createHmac('sha256', secret);
  return digest.update(previous).update(text).digest('hex');
}

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

/** The lines of one process: each numbered, and hashed together with the hash of the one before it. */
export class Chain {
  readonly id = uniqueId();
  readonly #isSecret: boolean;
  readonly #hash: LineHash;
  readonly #environment: string;
  #previous = noHash;
  #sequence = 0;

  constructor(secret: LogSecret, environment: string) {
    this.#isSecret = secret !== null;
    this.#hash = new LineHash(secret, `{"service":{"ephemeral_id":"${this.id}"},`);
    this.#environment = environment;
  }

  /**
   * Makes a line the next of the chain.
   * @param line the text of a JSON object whose last member is `event`, an object with at least one member
   * @returns its bytes, until the next line is made
   */
  seal(line: string): Buffer {
    this.#sequence += 1;
    this.#previous = this.#hash.of(this.#previous, line, `,"sequence":${decimal(this.#sequence, 0)}`);
    return this.#hash.withEnd(`,"hash":"${this.#previous}"}}`);
  }

  /**
   * A line of the chain's own. It tells the hash before it, so that a file that begins with it can be verified by itself.
   * @param predecessor of a start: undefined where lines go to a stream, null where the file was empty
   */
  checkpoint(reason: CheckpointReason, at: number, lost: number, predecessor?: Predecessor | null): Buffer {
    const line = {
      '@timestamp': new Date(at).toISOString(),
      gateway: {
        environment: this.#environment,
        chain: {
          algorithm: this.#isSecret ? 'hmac-sha256' : 'sha256',
          previous: this.#previous,
          lost,
          predecessor,
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
