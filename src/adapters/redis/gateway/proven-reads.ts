import { setTimeout as wait } from 'node:timers/promises';
import { KeyStoreUnavailable } from '../../../gateway/key-store.js';
import { SlotMoved } from '../cluster/cluster-calls.js';
import type { Heartbeat } from './heartbeat.js';
import { StoreUnseeded } from '../records-link.js';
import type { RecordsLink } from '../records-link.js';

/**
 * The maximum number of attempts of one read. A read is repeated if the connection or the store's generation changed
 * before the reply. A generation is one unbroken history of changes. After a missing reply, the read is repeated once
 * if a recent heartbeat succeeded.
 */
const attempts = 4;
/**
 * How many times a read waits, for at most 250 ms each, until a heartbeat decides whether the connection can be used.
 * One wait suffices for a planned failover; a busy machine needs more.
 */
const turnsOfPatience = 6;
/** Pause after a failed command, because Node sometimes notices only a little later that the connection has ended. */
const endMilliseconds = 5;

/**
 * Reads records from Redis. Accepts a reply only if the heartbeats trust the server both before the query and after the
 * reply. Otherwise the reply could come from a former master.
 */
export class ProvenReads {
  readonly #link: Pick<RecordsLink, 'read'>;
  readonly #heartbeat: Heartbeat;

  constructor(link: Pick<RecordsLink, 'read'>, heartbeat: Heartbeat) {
    [this.#link, this.#heartbeat] = [link, heartbeat];
  }

  /**
   * Reads the text of a record; null if it does not exist.
   * @throws KeyStoreUnavailable
   */
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
   * Reads a record, and accepts the reply only if the heartbeats still trust the server. If the connection was reopened
   * meanwhile, as in a failover, the read is repeated on the new connection.
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
   * Waits, at most `patience.turns` times, until a heartbeat has decided whether records may be read over the current
   * connections. Does not wait if no decision is expected soon.
   * @returns the epoch of the connections, which changes with each reconnect
   * @throws KeyStoreUnavailable if records must not be read over these connections
   */
  async #proven(patience: { turns: number }): Promise<number> {
    const { standing, verdict } = this.#heartbeat;
    const isWorthIt = (): boolean => patience.turns > 0 && !this.#heartbeat.isClosed && standing.isJudgedSoon;
    for (; isWorthIt(); patience.turns -= 1) {
      if (!standing.hasReplied) void this.#heartbeat.beat();
      await verdict.next();
    }
    const { proof } = standing;
    // `standing.reason` is null while cached records can be served. In that case, use the reason of the store.
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
