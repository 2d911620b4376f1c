import { setTimeout as wait } from 'node:timers/promises';
import { KeyStoreUnavailable } from '../../../gateway/ports.js';
import { SlotMoved } from '../cluster/cluster-calls.js';
import type { Heartbeat } from './heartbeat.js';
import { StoreUnseeded } from '../records-link.js';
import type { RecordsLink } from '../records-link.js';

/** A look-up is repeated if its connection was opened anew, or the generation changed, before its reply came. */
const attempts = 4;
/** Each takes at most a quarter of a second. One is enough for a planned failover; a busy machine needs more. */
const turnsOfPatience = 6;
/** A command can fail this long before the end of its connection is noticed. */
const endMilliseconds = 5;

/** Reads records from a server that is known to be the right one before the question and after the answer. */
export class ProvenReads {
  readonly #link: Pick<RecordsLink, 'read'>;
  readonly #heartbeat: Heartbeat;

  constructor(link: Pick<RecordsLink, 'read'>, heartbeat: Heartbeat) {
    [this.#link, this.#heartbeat] = [link, heartbeat];
  }

  /** The text of a record, null for none. @throws KeyStoreUnavailable */
  async text(name: string): Promise<string | null> {
    try {
      return await this.#ask(name);
    } catch (error) {
      if (error instanceof StoreUnseeded) this.#heartbeat.doubt();
      if (!(error instanceof SlotMoved)) throw error;
      await this.#heartbeat.beat();
      return this.#ask(name);
    }
  }

  /**
   * What was answered counts only where it comes from a server that is believed still. Where the connection was opened anew meanwhile,
   * as in a failover, the look-up is repeated on the new one.
   */
  async #ask(name: string): Promise<string | null> {
    const patience = { turns: turnsOfPatience };
    for (let attempt = 1; ; attempt += 1) {
      const proof = await this.#proven(patience);
      const isProven = (): boolean => this.#heartbeat.standing.proof === proof;
      try {
        const text = await this.#textIn(name);
        if (isProven()) return text;
      } catch (error) {
        await wait(endMilliseconds);
        if (isProven() || attempt === attempts) throw error;
      }
      if (attempt === attempts) throw new KeyStoreUnavailable('the connection to Redis was opened anew meanwhile');
    }
  }

  /** Resolves when the connections of this moment can be believed, after at most so many turns; at once where that is not to be expected. */
  async #proven(patience: { turns: number }): Promise<number> {
    const { standing, verdict } = this.#heartbeat;
    const isWorthIt = (): boolean => patience.turns > 0 && !this.#heartbeat.isClosed && standing.isJudgedSoon;
    for (; isWorthIt(); patience.turns -= 1) await verdict.next();
    const { proof } = standing;
    // Where records that are held are still served, there is no reason for all requests, but the store has one.
    if (proof === null || !standing.answers)
      throw new KeyStoreUnavailable(standing.reason ?? standing.state.reason ?? 'Redis could not be asked');
    return proof;
  }

  async #textIn(name: string): Promise<string | null> {
    try {
      return await this.#link.read(name, this.#heartbeat.standing.generation);
    } catch (error) {
      if (error instanceof KeyStoreUnavailable) throw error;
      throw new KeyStoreUnavailable('Redis could not be asked', { cause: error });
    }
  }
}
