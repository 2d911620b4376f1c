import type { Selectable } from '../../database/kysely.js';
import { rangeOf, type Page, type Paging } from '../../rest/paging.js';
import { objectIn } from '../fields.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';
import type { NoteSigner } from '../../evidence/signed-note.js';
import { appendEvents, pruneEvents } from './chain.js';
import { type Author, authorColumns } from './author.js';
import { type EventFilter, eventsMatching } from './filter.js';
import type { Action, RegistryEvent } from './schema.js';

/** An event to store. `before` and `after` are objects as the admin API shows them, without secrets. */
export interface NewEvent {
  readonly action: Action;
  /** The id of the merchant; empty if the event concerns no known merchant. */
  readonly merchantId: string;
  readonly keyId: string | null;
  readonly before: object | null;
  readonly after: object | null;
  /** The author of this event. Default: the author of the whole change. */
  readonly author?: Author;
}

/**
 * Stores events. Call this in the transaction of the change. Stored events never change, and only `deleteEvents`
 * deletes them.
 * @returns the sequence number of the last stored event; null without events
 */
export async function recordEvents(
  database: RegistryDatabase,
  events: readonly NewEvent[],
  { at, author, revision }: { readonly at: number; readonly author: Author; readonly revision: number },
): Promise<number | null> {
  if (events.length === 0) return null;
  const rows = events.map(({ action, merchantId, keyId, before, after, author: own = author }) => ({
    ...{ at, revision, ...authorColumns(own) },
    ...{ action, merchant_id: merchantId, key_id: keyId, before: textOf(before), after: textOf(after) },
  }));
  return appendEvents(database, rows);
}

/** Returns one page of the events that match the filter, newest first. */
export async function listEvents(
  database: RegistryDatabase,
  filter: EventFilter,
  paging: Paging,
): Promise<Page<RegistryEvent>> {
  const { offset, limit } = rangeOf(paging);
  const wanted = eventsMatching(database, filter);
  const { total } = await wanted.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const rows = await wanted.selectAll().orderBy('seq', 'desc').offset(offset).limit(limit).execute();
  return { items: rows.map(toEvent), totalRecords: total };
}

/** Returns the state of a key before its first reset; null if no event of a reset is stored. */
export async function beforeFirstReset(
  database: RegistryDatabase,
  keyId: string,
): Promise<Record<string, unknown> | null> {
  const first = await database
    .selectFrom('events')
    .select('before')
    .where('key_id', '=', keyId)
    .where('action', '=', 'key.reset')
    .orderBy('seq')
    .limit(1)
    .executeTakeFirst();
  return objectIn(first?.before ?? null);
}

/** Returns the time of the event that was stored last; null if there are no events. */
export async function newestEvent(database: RegistryDatabase): Promise<{ readonly at: number } | null> {
  const newest = database.selectFrom('events').select('at').orderBy('seq', 'desc').limit(1);
  return (await newest.executeTakeFirst()) ?? null;
}

/** Maximum number of events in one batch of deletions. A larger batch would delay changes. */
const batch = 500;

/** The result of one batch of deletions. */
export interface DeletedEvents {
  /** Sequence number of the last checked event. */
  readonly seen: number;
  readonly forgotten: number;
  /** Whether the deletion is complete, because no further old events follow. */
  readonly isEnd: boolean;
}

/** Which events to delete: those with a sequence number above `after` that were stored up to the time `until`. */
interface Deletion {
  readonly after: number;
  readonly until: number;
  readonly now: number;
  readonly signer?: NoteSigner | null;
}

/**
 * Deletes one batch of events up to the time `until`. Stops at the first newer event, because all later events are
 * newer too. An event dated in the future has a wrong time, so it does not stop the deletion.
 *
 * Keeps the newest event. If a backup is restored, the time of this event shows since when changes could be missing.
 * Also keeps the events about resets of a key that can be reset again. The next reset reads the key's original expiry
 * from the first of these events.
 */
export async function deleteEvents(
  database: RegistryDatabase,
  { after, until, now, signer = null }: Deletion,
): Promise<DeletedEvents> {
  const next = database.selectFrom('events').select(['seq', 'at']).where('seq', '>', after);
  const rows = await next.orderBy('seq').limit(batch).execute();
  const young = rows.findIndex(({ at }) => at > until && at <= now);
  const old = young === -1 ? rows : rows.slice(0, young);
  const seen = old.at(-1)?.seq;
  if (seen === undefined) return { seen: after, forgotten: 0, isEnd: true };
  const doomed = await database
    .selectFrom('events')
    .select('seq')
    .where('seq', '>', after)
    .where('seq', '<=', seen)
    .where('seq', '<', (it) => it.selectFrom('events as all').select((all) => all.fn.max('all.seq').as('newest')))
    .where('at', '<=', until)
    .where((it) =>
      it.or([
        it('action', '!=', 'key.reset'),
        it.not(
          it.or([
            it.exists(
              it
                .selectFrom('api_keys')
                .select('api_keys.key_id')
                .whereRef('api_keys.key_id', '=', 'events.key_id')
                .where('api_keys.expires_at', '>', until),
            ),
            // A key that was deactivated after a restore can be reactivated and reset again, so its reset events are
            // kept too.
            it.exists(it.selectFrom('held_back').select('held_back.id').whereRef('held_back.id', '=', 'events.key_id')),
          ]),
        ),
      ]),
    )
    .execute();
  await pruneEvents(
    database,
    doomed.map(({ seq }) => seq),
    { now, signer },
  );
  return { seen, forgotten: doomed.length, isEnd: young !== -1 || rows.length < batch };
}

/** Converts a row to an event of the admin API. */
export function toEvent(row: Selectable<RegistryTables['events']>): RegistryEvent {
  return {
    seq: row.seq,
    at: new Date(row.at).toISOString(),
    actor: row.actor,
    action: row.action as Action,
    merchantId: row.merchant_id,
    keyId: row.key_id,
    before: objectIn(row.before),
    after: objectIn(row.after),
    revision: row.revision,
    administratorId: row.administrator_id,
    proof: row.proof,
    claimed: row.claimed,
    source: row.source,
    requestId: row.request_id,
    reason: row.reason,
  };
}

function textOf(snapshot: object | null): string | null {
  return snapshot === null ? null : JSON.stringify(snapshot);
}
