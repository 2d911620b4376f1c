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

/** Adds events; belongs in the database transaction of the change. Nothing changes or removes an event. */
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
