import { setTimeout as wait } from 'node:timers/promises';
import { KeyStoreUnavailable } from '../../../gateway/ports.js';
import { SlotMoved } from '../cluster/cluster-calls.js';
import type { Heartbeat } from './heartbeat.js';
import { StoreUnseeded } from '../records-link.js';
import type { RecordsLink } from '../records-link.js';

/**
 * A read is repeated if its connection was reopened, or the generation changed, before the reply; once also if a Redis
 * that replied to a beat shortly before did not reply to it.
 */
const attempts = 4;
/** Each turn takes at most 250 ms. One is enough for a planned failover; a busy machine needs more. */
const turnsOfPatience = 6;
/** A command can fail this long before the end of its connection is noticed. */
const endMilliseconds = 5;

/** Reads records only from a server that is trusted before the query and still after the reply. */
export class ProvenReads {
  readonly #link: Pick<RecordsLink, 'read'>;
  readonly #heartbeat: Heartbeat;

  constructor(link: Pick<RecordsLink, 'read'>, heartbeat: Heartbeat) {
    [this.#link, this.#heartbeat] = [link, heartbeat];
  }

  /** The text of a record; null if it does not exist. @throws KeyStoreUnavailable */
  async text(name: string): Promise<string | null> {
    try {
      return await this.#read(name);
    } catch (error) {
      if (error instanceof StoreUnseeded) this.#heartbeat.markUnverified();
      if (!(error instanceof SlotMoved)) throw error;
      await this.#heartbeat.beat();
      return this.#read(name);
    }
  }

  /**
   * A reply counts only if its server is still trusted. If the connection was reopened meanwhile, as in a failover, the
   * read is repeated on the new connection.
   */
  async #read(name: string): Promise<string | null> {
    const patience = { turns: turnsOfPatience };
    for (let attempt = 1; ; attempt += 1) {
      const proof = await this.#proven(patience);
      const isProven = (): boolean => this.#heartbeat.standing.proof === proof;
      try {
        const text = await this.#textIn(name);
        if (isProven()) return text;
      } catch (error) {
        await wait(endMilliseconds);
        const isFirstSilence = attempt === 1 && error instanceof NoReply && this.#heartbeat.standing.isRecent;
        if ((isProven() && !isFirstSilence) || attempt === attempts) throw error;
      }
      if (attempt === attempts) throw new KeyStoreUnavailable('the connection to Redis was reopened during the read');
    }
  }

  /**
   * Resolves once the present connections are trusted, after a limited number of turns; at once if no verdict is
   * expected.
   */
  async #proven(patience: { turns: number }): Promise<number> {
    const { standing, verdict } = this.#heartbeat;
    const isWorthIt = (): boolean => patience.turns > 0 && !this.#heartbeat.isClosed && standing.isJudgedSoon;
    for (; isWorthIt(); patience.turns -= 1) {
      if (!standing.hasReplied) void this.#heartbeat.beat();
      await verdict.next();
    }
    const { proof } = standing;
    // `standing.reason` is null while cached records are served; the store's own reason applies then.
    if (proof === null || !standing.hasReplied)
      throw new KeyStoreUnavailable(standing.reason ?? standing.state.reason ?? 'Redis did not reply');
    return proof;
  }

  async #textIn(name: string): Promise<string | null> {
    try {
      return await this.#link.read(name, this.#heartbeat.standing.generation);
    } catch (error) {
      if (error instanceof KeyStoreUnavailable) throw error;
      throw new NoReply('Redis did not reply', { cause: error });
    }
  }
}

class NoReply extends KeyStoreUnavailable {}
