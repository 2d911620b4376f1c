import type { StoreLook } from '../../../registry/ports.js';
import { isProof } from '../seal.js';

/**
 * Which generation the slots of a Cluster are to be complete in. A forged meta record may name any: by that every slot would seem to
 * lack its records, and all of them would be written anew.
 */
export class StatedGeneration {
  #sealed = '';

  /** @returns the latest that a sealed meta record has named; before the first, whatever this one names */
  of({ meta, seal }: Pick<StoreLook, 'meta' | 'seal'>): string {
    const stated = meta?.generation ?? '';
    // One that somebody has put back is sealed too, but names an earlier generation.
    if (isProof(seal) && stated > this.#sealed) this.#sealed = stated;
    return this.#sealed === '' ? stated : this.#sealed;
  }
}
