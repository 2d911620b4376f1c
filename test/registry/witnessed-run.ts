import { type Checkpoint, runKeyName, signCheckpoint } from '../../src/evidence/checkpoint.js';
import { leafHash, MerkleTree } from '../../src/evidence/merkle-tree.js';
import { consistencyProof } from '../../src/evidence/tree-proof.js';
import { keyText, NoteSigner } from '../../src/evidence/signed-note.js';
import { submissionText } from '../../src/evidence/submission.js';
import { uniqueId } from '../../src/telemetry/unique-id.js';

/** A run (the part of an access log that one process writes) as a gateway submits it, but without a log file. */
export class WitnessedRun {
  readonly id = uniqueId();
  readonly instance: NoteSigner;
  readonly signer: NoteSigner;
  tree = new MerkleTree();
  #previous = '0'.repeat(64);

  constructor(instance: NoteSigner) {
    this.instance = instance;
    this.signer = NoteSigner.inMemory(runKeyName(instance.key.name, this.id));
  }

  /** The end of the run, as the next process finds it in the file. */
  get end(): { run: string; size: number; hash: Buffer } {
    return { run: this.id, size: this.tree.size, hash: Buffer.from(this.#previous, 'hex') };
  }

  /** Appends this many lines. */
  write(lines: number): this {
    for (let count = 0; count < lines; count += 1) {
      this.#previous = leafHash(this.#previous, `line ${this.tree.size + 1} of ${this.id}`);
      this.tree.append(this.#previous);
    }
    return this;
  }

  /** Signs the current state. @returns the body of the message that submits it */
  submit(
    occasion: Checkpoint['occasion'],
    at: number,
    { oldSize, proof, signer = this.signer, instance = this.instance, everySeconds = 10, ...more }: Changes = {},
  ): string {
    const { name } = instance.key;
    const root = this.tree.root();
    const growth = this.tree.takeGrowth();
    const previous = occasion === 'start' ? { previous: null } : {};
    const checkpoint = { name, run: this.id, size: this.tree.size, root, occasion, at, ...previous, ...more };
    const note = signCheckpoint(checkpoint, instance, signer);
    const submission = submissionText({
      ...{ oldSize: oldSize ?? growth.before.to, proof: proof ?? consistencyProof(growth), note },
    });
    return JSON.stringify({ key: keyText(instance.key), everySeconds, submission });
  }
}

interface Changes extends Partial<Pick<Checkpoint, 'previous' | 'next' | 'root' | 'size'>> {
  readonly oldSize?: number;
  readonly proof?: readonly Buffer[];
  readonly signer?: NoteSigner;
  readonly instance?: NoteSigner;
  readonly everySeconds?: number;
}
