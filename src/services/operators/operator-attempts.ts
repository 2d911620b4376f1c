import type { DatabaseClock } from '../../database/dialects.js';
import { countedSource } from '../../rest/counted-source.js';
import { FirstReads } from '../../rest/trail/first-reads.js';
import { type CountedRefusals, countedState, RefusalCounts } from '../../rest/trail/refusal-counts.js';
import type { Timers } from '../periodic-task.js';
import type { ServicesDatabase } from '../services-database.js';
import { type EventAuthor, type NewOperatorEvent, storeOperatorEvent } from './operator-events.js';

/** Why no operator could be authenticated for a request. */
export type SignInFailure = 'forwarded' | 'malformed' | 'invalid' | 'source' | 'headers_too_large';

/** Maximum number of events about refused attempts per minute, so that an attacker cannot fill the database. */
const mostEvents = 600;
/**
 * While this many stored events wait to be sent to the registry, no events about refused attempts are stored. A later
 * event states how many attempts were omitted.
 */
const mostWaiting = 10_000;

/**
 * Failure codes for a missing approval and a missing reason. The code of all other refusals is `permission_missing`.
 */
const codes: ReadonlyMap<string, string> = new Map([
  ['approval', 'approval_required'],
  ['reason', 'reason_required'],
]);

/**
 * The details of one refused attempt, for the stored event. An event that counts several attempts contains the details
 * of the first.
 */
type First =
  | Pick<NewOperatorEvent & { action: 'sign-in.failed' }, keyof EventAuthor | 'action'>
  | (Pick<NewOperatorEvent & { action: 'attempt.refused' }, keyof EventAuthor | 'action'> & {
      readonly after: { readonly method: string; readonly route: string; readonly needs: string };
    });

/** Options of `OperatorAttempts`. */
export interface OperatorAttemptOptions {
  readonly database: ServicesDatabase;
  /** The clock of the database, for the time of an event. */
  readonly clock: DatabaseClock;
  /** The machine's time in milliseconds since 1970. */
  readonly now: () => number;
  readonly timers: Timers;
  /** Returns the number of stored events that wait to be sent to the registry. */
  readonly waiting: () => number;
}

/**
 * Stores events about refused attempts and about reads. The events are sent to the registry later. The number of events
 * about refused attempts is limited. For reads, one event is stored for each combination of hour, operator, merchant
 * and kind of records.
 */
export class OperatorAttempts {
  readonly #options: OperatorAttemptOptions;
  readonly #reads = new FirstReads();
  readonly #refusals: RefusalCounts<First>;
  readonly #storing = new Set<Promise<void>>();
  #omitted = 0;

  constructor(options: OperatorAttemptOptions) {
    this.#options = options;
    this.#refusals = new RefusalCounts({
      ...{ clock: options, timers: options.timers, mostKeys: mostEvents, store: (all) => this.#storeRefusals(all) },
      omit: () => void (this.#omitted += 1),
    });
  }

  /**
   * Counts a request without a valid operator. Once a minute, the counts are stored as one event per client address or
   * IPv6 /64. With one event per IPv6 address, a client could use up `mostKeys` with the addresses of its /64, and the
   * attempts of all other clients would have no event.
   */
  signInFailed({ id, source }: Pick<EventAuthor, 'id' | 'source'>, cause: SignInFailure): void {
    this.#refusals.add(countedSource(source ?? ''), cause, {
      ...{ action: 'sign-in.failed', id, source, actor: 'unknown', administratorId: null, proof: 'unproven' },
      ...{ claimed: null, reason: null },
    });
  }

  /**
   * Counts a request of an operator who lacks a permission, an approval or a reason. Once a minute, the counts are
   * stored. Requests with the same client (address or IPv6 /64), credential (token or session) and missing item are
   * counted in one event.
   */
  refused(
    author: EventAuthor,
    after: { readonly method: string; readonly route: string; readonly needs: string },
  ): void {
    const key = [countedSource(author.source ?? ''), author.proof, after.needs].join('\n');
    const code = codes.get(after.needs) ?? 'permission_missing';
    this.#refusals.add(key, code, { ...author, action: 'attempt.refused', after });
  }

  /**
   * Notes that an operator reads a merchant's records. Only the first read of each kind of records in an hour is stored
   * as an event.
   * @param merchantId id of the merchant; empty for a list of all merchants' records
   */
  read(author: EventAuthor, merchantId: string, what: 'wallets' | 'entries'): void {
    const { database, clock, now } = this.#options;
    const event = { ...author, action: 'merchant.read', merchantId, before: null, after: { what } } as const;
    const storing = this.#reads.note(author, merchantId, what, now(), () => storeOperatorEvent(database, clock, event));
    if (storing === null) return;
    const tracked = storing.finally(() => this.#storing.delete(tracked));
    this.#storing.add(tracked);
  }

  /** Stores the counted refusals, and waits until all events are stored. */
  async stop(): Promise<void> {
    await Promise.all([...this.#storing, this.#refusals.stop()]);
  }

  async #storeRefusals(all: readonly CountedRefusals<First>[]): Promise<void> {
    const { database, clock, waiting } = this.#options;
    let mayStore = waiting() < mostWaiting;
    for (const { first, ...counted } of all) {
      const state = countedState(counted);
      // Reset the number before the event is stored, because more attempts can be omitted meanwhile.
      const omitted = this.#omitted;
      this.#omitted = 0;
      const after = omitted === 0 ? state : { ...state, omittedBefore: omitted };
      const of = { merchantId: '', before: null } as const;
      const event: NewOperatorEvent =
        first.action === 'sign-in.failed'
          ? { ...first, ...of, after }
          : { ...first, ...of, after: { ...first.after, ...after } };
      if (mayStore) mayStore = await storeOperatorEvent(database, clock, event).then(isTrue, isFalse);
      if (!mayStore) this.#omitted += omitted + state.refusals;
    }
  }
}

const isTrue = (): boolean => true;
const isFalse = (): boolean => false;
