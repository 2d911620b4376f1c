import type { Selectable } from '../../database/kysely.js';
import { rangeOf, type Page, type Paging } from '../../rest/paging.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';
import type { Action, RegistryEvent } from './schema.js';

/** An event to record. The snapshots are what administrators see, which holds no secret. */
export interface NewEvent {
  readonly action: Action;
  /** Empty where it is about no merchant that is known. */
  readonly merchantId: string;
  readonly keyId: string | null;
  readonly before: object | null;
  readonly after: object | null;
}

/** Which events are asked for. */
export interface EventFilter {
  readonly merchantId?: string | undefined;
  readonly keyId?: string | undefined;
  readonly action?: string | undefined;
  /** In milliseconds since 1970, itself included. */
  readonly since?: number | undefined;
}

/** Adds events; belongs in the database transaction of the change. Nothing changes an event, and `forgetEvents` alone removes some. */
export async function recordEvents(
  database: RegistryDatabase,
  events: readonly NewEvent[],
  common: { readonly at: number; readonly actor: string; readonly revision: number },
): Promise<void> {
  if (events.length === 0) return;
  const rows = events.map(({ action, merchantId, keyId, before, after }) => ({
    ...{ ...common, action, merchant_id: merchantId, key_id: keyId, before: textOf(before), after: textOf(after) },
  }));
  await database.insertInto('events').values(rows).execute();
}

/** The events that the filter names, newest first. */
export async function listEvents(
  database: RegistryDatabase,
  { merchantId, keyId, action, since }: EventFilter,
  paging: Paging,
): Promise<Page<RegistryEvent>> {
  const { offset, limit } = rangeOf(paging);
  let wanted = database.selectFrom(
    (keyId === undefined ? everything(database) : eventsAbout(database, keyId)).as('events'),
  );
  if (merchantId !== undefined) wanted = wanted.where('merchant_id', '=', merchantId);
  if (action !== undefined) wanted = wanted.where('action', '=', action);
  if (since !== undefined) wanted = wanted.where('at', '>=', since);
  const { total } = await wanted.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const rows = await wanted.selectAll().orderBy('seq', 'desc').offset(offset).limit(limit).execute();
  return { items: rows.map(toEvent), totalRecords: total };
}

/** What a key was before it was reset for the first time; null where it never was. */
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

/** The event that was recorded last; null where there is none. */
export async function newestEvent(database: RegistryDatabase): Promise<{ readonly at: number } | null> {
  const newest = database.selectFrom('events').select('at').orderBy('seq', 'desc').limit(1);
  return (await newest.executeTakeFirst()) ?? null;
}

/** More rows than a batch has would make changes wait. */
const batch = 500;

/** What a look at some old events did. */
export interface Forgotten {
  /** The number of the last event that was looked at. */
  readonly seen: number;
  readonly forgotten: number;
  /** Whether there is nothing older behind it. */
  readonly isEnd: boolean;
}

/**
 * Forgets events of a moment or before, among the next ones after a number. An event is younger than those before it, so a clock that was
 * behind when it was recorded does not make it old; one that is dated later than now says nothing about others. Kept are the newest event,
 * from which on changes are unknown after a restore, and how a key was reset, as long as the key may be reset again.
 */
export async function forgetEvents(
  database: RegistryDatabase,
  { after, until, now }: { readonly after: number; readonly until: number; readonly now: number },
): Promise<Forgotten> {
  const next = database.selectFrom('events').select(['seq', 'at']).where('seq', '>', after);
  const rows = await next.orderBy('seq').limit(batch).execute();
  const young = rows.findIndex(({ at }) => at > until && at <= now);
  const old = young === -1 ? rows : rows.slice(0, young);
  const seen = old.at(-1)?.seq;
  if (seen === undefined) return { seen: after, forgotten: 0, isEnd: true };
  const { numDeletedRows } = await database
    .deleteFrom('events')
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
            // It may be given back an end that lies ahead.
            it.exists(it.selectFrom('held_back').select('held_back.id').whereRef('held_back.id', '=', 'events.key_id')),
          ]),
        ),
      ]),
    )
    .executeTakeFirstOrThrow();
  return { seen, forgotten: Number(numDeletedRows), isEnd: young !== -1 || rows.length < batch };
}

function everything(database: RegistryDatabase) {
  return database.selectFrom('events').selectAll();
}

/**
 * The events about a key. An import names many keys in one event, which is found by the change that it was. Two look-ups, each
 * by an index: with `or` a database goes through all events in their order until it has found enough.
 */
function eventsAbout(database: RegistryDatabase, keyId: string) {
  const key = database.selectFrom('api_keys').where('key_id', '=', keyId);
  const ofImport = database
    .selectFrom('events')
    .selectAll()
    .where('merchant_id', '=', key.select('merchant_id'))
    .where('revision', '=', key.select('created_revision'))
    .where('action', '=', 'keys.imported');
  return database.selectFrom('events').selectAll().where('key_id', '=', keyId).unionAll(ofImport);
}

function toEvent(row: Selectable<RegistryTables['events']>): RegistryEvent {
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
  };
}

function textOf(snapshot: object | null): string | null {
  return snapshot === null ? null : JSON.stringify(snapshot);
}

function objectIn(text: string | null): Record<string, unknown> | null {
  return text === null ? null : (JSON.parse(text) as Record<string, unknown>);
}
