import { LRUCache } from 'lru-cache';
import type { Eventual } from '../../gateway/eventual.js';
import { growingTo } from '../../gateway/growing-to.js';
import { type CacheFigures, KeyStoreUnavailable, type RecordRead } from '../../gateway/ports.js';
import { late, Patience } from './patience.js';

/** How much is held, and for how long. */
export interface CacheLimits {
  readonly maxEntries: number;
  readonly maxAgeMilliseconds: number;
  readonly unknownMaxEntries: number;
  readonly unknownMaxAgeMilliseconds: number;
  readonly maxStaleMilliseconds: number;
}

interface Held<Compiled> {
  /** A record that cannot be used is held as its failure, so that it is read and told of once and not for each request. */
  readonly value: Compiled | KeyStoreUnavailable;
  readonly readAt: number;
}

interface Flight<Compiled> {
  readonly answer: Promise<Compiled | KeyStoreUnavailable | null>;
  /** False from the moment at which the record may have changed: what arrives then may be older than the notice. */
  mayBeHeld: boolean;
  /** Another round means that a revision was acknowledged since: a new request must not join. */
  readonly round: number;
}

/**
 * Holds records, never verdicts. Known and unknown ones are held apart, so that a flood of unknown keys evicts none that
 * is known; requests share a look-up unless a revision was acknowledged since it began; a value that was read before a change
 * and arrives after its notice is not held.
 */
export class RecordCache<Compiled extends object> {
  #known: LRUCache<string, Held<Compiled>>;
  #unknown: LRUCache<string, { readonly readAt: number }>;
  readonly #evictions = { known: 0, unknown: 0 };
  readonly #flights = new Map<string, Flight<Compiled>>();
  #round = 0;
  #ahead = new ReadAhead(true);
  readonly #patience: Patience;
  readonly #limits: CacheLimits;
  readonly #hearing: Hearing;
  readonly #read: (id: string) => Promise<Compiled | KeyStoreUnavailable | null>;
  readonly #now: () => number;

  /**
   * @param read asks the store; rejects with KeyStoreUnavailable where it cannot be asked
   * @param now milliseconds by a clock that nobody sets
   */
  constructor(
    limits: CacheLimits,
    hearing: Hearing,
    read: (id: string) => Promise<Compiled | KeyStoreUnavailable | null>,
    now: () => number = () => performance.now(),
  ) {
    [this.#limits, this.#hearing, this.#read, this.#now] = [limits, hearing, read, now];
    this.#patience = new Patience(() => hearing.fresh, now);
    [this.#known, this.#unknown] = [this.#map('known'), this.#map('unknown')];
  }

  /**
   * Finds a record: held and known to be true, just read, or, while the store cannot be asked, held and not older than
   * is allowed. That a record is not there is never said from memory while nothing can be heard.
   */
  get(id: string): Eventual<RecordRead<Compiled>> {
    if (this.#hearing.fresh) return this.#heldOrAsked(id);
    if (this.#patience.isOver && this.#mayServeStale(id)) return this.#stale(id);
    const caughtUp = this.#hearing.catchUp();
    const soon = this.#mayServeStale(id) ? Promise.race([caughtUp, this.#patience.end()]) : caughtUp;
    return soon.then((ended) => {
      if (this.#hearing.fresh) return this.#heldOrAsked(id);
      return ended === late && this.#mayServeStale(id) ? this.#stale(id) : this.#askedOrStale(id);
    });
  }

  #heldOrAsked(id: string): Eventual<RecordRead<Compiled>> {
    const held = this.#heldAndYoung(id);
    return held === undefined ? this.#askedOrStale(id) : this.#answer(held, 'cache', this.#hearing.sinceKnownTrue);
  }

  async #askedOrStale(id: string): Promise<RecordRead<Compiled>> {
    const asked = this.#ask(id);
    try {
      const value = await (this.#mayServeStale(id) ? Promise.race([asked, this.#patience.end()]) : asked);
      if (value !== late) return this.#answer(value, 'store', 0);
      asked.catch(() => undefined); // nobody may be waiting for it any more
    } catch (error) {
      if (!(error instanceof KeyStoreUnavailable)) throw error;
    }
    return this.#mayServeStale(id) ? this.#stale(id) : this.#answer(await asked, 'store', 0);
  }

  /** @throws KeyStoreUnavailable for a record that cannot be used */
  #stale(id: string): RecordRead<Compiled> {
    return this.#answer(this.#known.get(id)?.value ?? null, 'stale', this.#hearing.sinceKnownTrue);
  }

  #mayServeStale(id: string): boolean {
    return this.#known.has(id) && this.#hearing.sinceKnownTrue <= this.#hearing.staleMilliseconds;
  }

  /** Drops records that may have changed. */
  drop(ids: readonly string[]): void {
    for (const id of ids) {
      for (const held of [this.#known, this.#unknown]) held.delete(id);
      this.#abandon(id);
      this.#ahead.changed(id);
    }
  }

  /** Drops everything. */
  dropAll(): void {
    [this.#known, this.#unknown] = [this.#map('known'), this.#map('unknown')];
    this.becomeStale();
  }

  /**
   * Has new requests join no look-up that is under way. To be called before a revision is acknowledged: from then on the registry
   * may call a change in force that the reply on its way does not know.
   */
  closeLookUps(): void {
    this.#round += 1;
  }

  /** What is held becomes stale: changes cannot be heard any more, and what arrives now cannot be held. */
  becomeStale(): void {
    for (const id of this.#flights.keys()) this.#abandon(id);
    this.#ahead.end();
  }

  /** Begins to read records that nobody has asked for. Only the newest such reading counts. */
  readAhead(): ReadAhead {
    this.#ahead.end();
    return (this.#ahead = new ReadAhead(false));
  }

  /**
   * Holds a record that was read ahead, unless it is held already or may have changed meanwhile.
   * @returns false where there is no room: nothing that a request asked for has to go for it
   */
  holdAhead(ahead: ReadAhead, id: string, value: Compiled | KeyStoreUnavailable): boolean {
    if (!ahead.mayHold(id) || !this.#hearing.fresh || this.#known.has(id)) return true;
    if (this.#known.size >= this.#limits.maxEntries) return false;
    this.#unknown.delete(id);
    this.#known.set(id, { value, readAt: Math.floor(this.#now()) });
    return true;
  }

  /** A record that is held, whether it may be served or not; this is no use of it. */
  peek(id: string): Compiled | KeyStoreUnavailable | undefined {
    return this.#known.peek(id)?.value;
  }

  /** Whether it is held that there is such a record, however old that is, or that there is none. */
  remembers(id: string): boolean {
    return this.#known.has(id) || (this.#hearing.fresh && this.#heldAndYoung(id) === null);
  }

  /** The records that are held, by their ids, whether they may be served or not. */
  *held(): Generator<readonly [id: string, record: Compiled]> {
    for (const [id, { value }] of this.#known.entries()) if (!(value instanceof KeyStoreUnavailable)) yield [id, value];
  }

  get figures(): Pick<CacheFigures, 'known' | 'unknown'> {
    return {
      known: { entries: this.#known.size, evictions: this.#evictions.known },
      unknown: { entries: this.#unknown.size, evictions: this.#evictions.unknown },
    };
  }

  #answer(
    value: Compiled | KeyStoreUnavailable | null,
    source: RecordRead<Compiled>['source'],
    ageMilliseconds: number,
  ): RecordRead<Compiled> {
    if (value instanceof KeyStoreUnavailable) throw value;
    return { record: value, source, ageMilliseconds };
  }

  #heldAndYoung(id: string): Compiled | KeyStoreUnavailable | null | undefined {
    const now = this.#now();
    const known = this.#known.get(id);
    if (known !== undefined && now - known.readAt <= this.#limits.maxAgeMilliseconds) return known.value;
    const unknown = this.#unknown.get(id);
    if (unknown !== undefined && now - unknown.readAt <= this.#limits.unknownMaxAgeMilliseconds) return null;
    return undefined;
  }

  #ask(id: string): Flight<Compiled>['answer'] {
    // No notice would say that a shared look-up has become too old.
    if (!this.#hearing.fresh) return this.#read(id);
    const underWay = this.#flights.get(id);
    if (underWay?.round === this.#round) return underWay.answer;
    this.#abandon(id);
    const flight: Flight<Compiled> = {
      ...{ mayBeHeld: true, round: this.#round },
      answer: this.#read(id).then(
        (value) => {
          this.#land(id, flight, value);
          return value;
        },
        (error: unknown) => {
          if (this.#flights.get(id) === flight) this.#flights.delete(id);
          throw error;
        },
      ),
    };
    this.#flights.set(id, flight);
    return flight.answer;
  }

  #land(id: string, flight: Flight<Compiled>, value: Compiled | KeyStoreUnavailable | null): void {
    if (this.#flights.get(id) === flight) this.#flights.delete(id);
    if (!flight.mayBeHeld || !this.#hearing.fresh) return;
    const readAt = Math.floor(this.#now()); // what is no integer takes 16 bytes more
    if (value === null) {
      this.#known.delete(id);
      this.#unknown.set(id, { readAt });
    } else {
      this.#known.set(id, { value, readAt });
    }
  }

  /** Whoever asks from now on asks anew; whoever waits already asked before the change. */
  #abandon(id: string): void {
    const flight = this.#flights.get(id);
    if (flight !== undefined) flight.mayBeHeld = false;
    this.#flights.delete(id);
  }

  /** A bounded map that counts what it evicts for want of room. To clear one of 100,000 entries takes 30 ms; a new one takes its place. */
  #map<Value extends object>(kind: 'known' | 'unknown'): LRUCache<string, Value> {
    const { maxEntries, unknownMaxEntries } = this.#limits;
    const dispose = (_value: Value, _id: string, reason: string): void => {
      if (reason === 'evict') this.#evictions[kind] += 1;
    };
    return new LRUCache<string, Value>({ ...growingTo(kind === 'known' ? maxEntries : unknownMaxEntries), dispose });
  }
}

/** What the cache asks about the truth of what it holds. */
export interface Hearing {
  /** Whether every change is heard, so that what is held is true. */
  readonly fresh: boolean;
  /** Milliseconds since everything held was known to be true. */
  readonly sinceKnownTrue: number;
  /** For how long after that it may be served. */
  readonly staleMilliseconds: number;
  /** Tries to be fresh again, in bounded time; resolves whether or not that worked. */
  catchUp(): Promise<void>;
}

/** A reading of records that nobody has asked for. What may have changed since it began is not held. */
export class ReadAhead {
  readonly #changed = new Set<string>();
  #isOver: boolean;

  constructor(isOver: boolean) {
    this.#isOver = isOver;
  }

  changed(id: string): void {
    if (!this.#isOver) this.#changed.add(id);
  }

  /** From now on nothing of it is held. */
  end(): void {
    this.#isOver = true;
    this.#changed.clear();
  }

  mayHold(id: string): boolean {
    return !this.#isOver && !this.#changed.has(id);
  }
}
