import type { DatabaseClock } from '../../database/dialects.js';
import { mostServicesEvents, type ServicesEvent } from '../../rest/trail/services-events.js';
import type { ServicesDatabase } from '../services-database.js';

/** An event without its time, which is added when the event is stored. */
export type NewOperatorEvent = WithoutTime<ServicesEvent>;

type WithoutTime<Event> = Event extends unknown ? Omit<Event, 'at'> : never;

/** The author of an event: who made the request, how the identity was proven, from which address, and why. */
export type EventAuthor = Pick<
  ServicesEvent,
  'id' | 'actor' | 'administratorId' | 'proof' | 'claimed' | 'source' | 'reason'
>;

/**
 * Sends events to the registry, which appends each event only once. The promise rejects unless the registry has stored
 * all events.
 */
export type Trail = (events: readonly ServicesEvent[]) => Promise<void>;

/**
 * Stores an event that is sent to the registry later, so that no change waits for the registry. For an event about a
 * change, pass the transaction of the change: the change and its event are then stored together or not at all.
 */
export async function storeOperatorEvent(
  transaction: ServicesDatabase,
  clock: DatabaseClock,
  { id, ...event }: NewOperatorEvent,
): Promise<void> {
  await transaction
    .insertInto('operator_events')
    .values({ id, at: clock.now(), event: JSON.stringify(event) })
    .execute();
}

/** The stored events that are not yet sent to the registry. */
interface WaitingEvents {
  readonly count: number;
  /** The time of the oldest waiting event, in milliseconds since 1970; null if no event waits. */
  readonly oldestAt: number | null;
}

/** Dependencies of `OperatorEvents`. */
export interface OperatorEventsOptions {
  readonly database: ServicesDatabase;
  /** Sends events to the registry; null: waiting events are only counted. */
  readonly trail: Trail | null;
}

/** Sends stored events to the registry, and counts those that wait. */
export class OperatorEvents {
  readonly #options: OperatorEventsOptions;
  #waiting: WaitingEvents | null = null;

  constructor(options: OperatorEventsOptions) {
    this.#options = options;
  }

  /**
   * The number of waiting events and the time of the oldest, as of the last call of `send`; null before the first call.
   */
  get waiting(): WaitingEvents | null {
    return this.#waiting;
  }

  /**
   * Sends the oldest events, and deletes them once the registry has stored them. An event is sent again if the response
   * was lost, and several processes can send the same event. The registry ignores the copies.
   * @returns true if more events could be waiting
   */
  async send(): Promise<boolean> {
    const { database, trail } = this.#options;
    const wanted = database.selectFrom('operator_events').selectAll().orderBy('sequence').limit(mostServicesEvents);
    const rows = trail === null ? [] : await wanted.execute();
    if (trail === null || rows.length > 0) this.#waiting = await countWaiting(database);
    if (trail !== null && rows.length > 0) {
      await trail(
        rows.map(({ id, at, event }) => {
          const content = JSON.parse(event) as NewOperatorEvent;
          return { ...content, id, at: new Date(at).toISOString() };
        }),
      );
      const sent = rows.map(({ id }) => id);
      await database.deleteFrom('operator_events').where('id', 'in', sent).execute();
    }
    if (trail !== null && rows.length < mostServicesEvents) this.#waiting = { count: 0, oldestAt: null };
    return rows.length === mostServicesEvents;
  }
}

async function countWaiting(database: ServicesDatabase): Promise<WaitingEvents> {
  const { count, oldest } = await database
    .selectFrom('operator_events')
    .select((it) => [it.fn.countAll<number>().as('count'), it.fn.min<number | null>('at').as('oldest')])
    .executeTakeFirstOrThrow();
  return { count, oldestAt: oldest };
}
