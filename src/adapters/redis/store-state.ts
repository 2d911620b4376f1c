import { MalformedRecord, parseMetaRecord, parseRecordText } from '../../gateway/records.js';
import type { StoredMeta } from '../../registry/ports.js';
import { revisionIn } from './revision.js';

const notAsked = 'it is not known yet whether the store is seeded';

/**
 * Whether the records of a store can decide anything. A store without its meta record is new, flushed or restored empty;
 * one whose revision went back has lost changes, a revocation perhaps, as a replica may that was promoted.
 */
export class StoreState {
  #reason: string | null = notAsked;
  #doubted = false;
  #generation: string | null = null;
  #highestRevision = 0;

  /** Why nothing could be decided when the store was last asked; null where it could. */
  get reason(): string | null {
    return this.#reason;
  }

  /** The generation of the records; null while nothing can be decided, or that is in doubt. */
  get generation(): string | null {
    return this.#doubted ? null : this.acceptedGeneration;
  }

  /** The generation of the records when the store was last asked; null where nothing could be decided then. */
  get acceptedGeneration(): string | null {
    return this.#reason === null ? this.#generation : null;
  }

  /**
   * Takes in what the store says of itself.
   * @returns the revision of the newest change
   */
  accept(meta: string | null, newest: string | null): number {
    const revision = revisionIn(newest);
    this.#doubted = false;
    try {
      const generation = generationOf(meta);
      if (revision === null) throw new MalformedRecord('the revision is not a number');
      if (generation !== this.#generation) this.#highestRevision = 0;
      this.#generation = generation;
      this.#reason =
        revision < this.#highestRevision
          ? `the store has lost changes: revision ${this.#highestRevision} was seen, and it has ${revision}`
          : null;
      this.#highestRevision = Math.max(this.#highestRevision, revision);
    } catch (error) {
      if (!(error instanceof MalformedRecord)) throw error;
      this.#reason = error.message;
    }
    return revision ?? 0;
  }

  /** Takes what was known for nothing, until the store has been asked again. */
  doubt(): void {
    this.#doubted = true;
  }
}

/**
 * The generation that a meta record names.
 * @throws MalformedRecord where there is no such record, or one that cannot be used
 */
export function generationOf(meta: string | null): string {
  return readMetaRecord(meta).generation;
}

/**
 * A meta record as it is stored.
 * @throws MalformedRecord where there is none, or one that cannot be used
 */
function readMetaRecord(meta: string | null): ReturnType<typeof parseMetaRecord> {
  if (meta === null) throw new MalformedRecord('the store is not seeded: it has no meta record');
  try {
    return parseMetaRecord(parseRecordText(meta));
  } catch (error) {
    throw new MalformedRecord('the meta record of the store cannot be used', { cause: error });
  }
}

/** A meta record as it is stored; of no generation where it cannot be used, null where there is none. */
export function storedMeta(meta: string | null): StoredMeta | null {
  if (meta === null) return null;
  try {
    return readMetaRecord(meta);
  } catch (error) {
    if (error instanceof MalformedRecord) return { generation: null };
    throw error;
  }
}
