import { Refusal } from '../../rest/refusal.js';
import { Check } from '../../typebox/typebox.js';
import type { Caller } from '../administrators/caller.js';
import { lockRevision } from '../change.js';
import { fillPage } from '../exports/fill-page.js';
import type { RegistryContext } from '../registry-context.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { Author } from './author.js';
import { type EventFilter, eventFilterOf, eventsMatching, type GivenFilter } from './filter.js';
import { recordEvents, toEvent } from './repository.js';
import { type EventExportPage, exportedSchema } from './schema.js';

/**
 * Rows per query. The number is low to limit the memory: the two states (`before` and `after`) in one row can have 600
 * KiB.
 */
const readAtOnce = 100;

/**
 * Begins an export: stores an event about the export. This event is also the last event that the export contains. A
 * lock makes writers store events one after another. So no event with a lower sequence number can appear later, and the
 * export misses no event.
 * @param after the sequence number after which the export begins
 * @returns the sequence number of the event about the export
 */
export async function beginExport(
  { database, clock }: Pick<RegistryContext, 'database' | 'clock'>,
  author: Author,
  given: GivenFilter,
  after: number,
): Promise<number> {
  // Rejects an invalid filter before the export's event is stored.
  eventFilterOf(given);
  const seq = await database.transaction().execute(async (transaction) => {
    // Locks the row of the revision (number of the newest change), so that a registry of the previous release waits
    // too. Such a registry locks only this row when it stores an event.
    const revision = await lockRevision(transaction);
    const event = { action: 'events.exported', merchantId: '', keyId: null, before: null } as const;
    const events = [{ ...event, after: { filter: given, after } }];
    return recordEvents(transaction, events, { at: clock.now(), author, revision });
  });
  return seq ?? 0;
}

/**
 * Reads one page of an export, oldest first. Only the caller who began the export is allowed to read it. The filter
 * comes from the event of the export, so the audit trail shows exactly which events were exported.
 * @param after the sequence number after which the page begins; default: the beginning of the export
 * @throws Refusal 404 for an unknown export, and for an export that another caller began
 */
export async function readEventExport(
  database: RegistryDatabase,
  id: string,
  caller: Caller,
  after = 0,
): Promise<EventExportPage> {
  const { filter, from, through } = await rangeOf(database, id, caller);
  const { entries, last } = await fillPage(String(Math.max(from, after)), {
    readAtOnce,
    read: (place, limit) => readRows(database, filter, { after: Number(place), through, limit }),
    idOf: ({ seq }) => String(seq),
    entryOf: ({ hash, ...row }) => ({ ...toEvent(row), hash }),
  });
  return { events: entries, next: last === null ? null : Number(last) };
}

async function rangeOf(database: RegistryDatabase, id: string, { administratorId, name }: Caller) {
  const row = /^[1-9][0-9]{0,14}$/.test(id)
    ? await database.selectFrom('events').selectAll().where('seq', '=', Number(id)).executeTakeFirst()
    : undefined;
  const isOwn = row?.administrator_id === administratorId && row.actor === name;
  if (!isOwn || row.action !== 'events.exported') throw Refusal.notFound('Export');
  const exported: unknown = JSON.parse(row.after ?? 'null');
  // A registry of a later release might have begun the export with a filter that this release does not know.
  if (!Check(exportedSchema, exported)) throw Refusal.notFound('Export');
  return { filter: eventFilterOf(exported.filter), from: exported.after, through: row.seq };
}

interface Range {
  readonly after: number;
  readonly through: number;
  readonly limit: number;
}

async function readRows(database: RegistryDatabase, filter: EventFilter, { after, through, limit }: Range) {
  const wanted = eventsMatching(database, filter).selectAll().where('seq', '>', after).where('seq', '<=', through);
  const rows = await wanted.orderBy('seq').limit(limit).execute();
  if (rows.length === 0) return [];
  // Reads the hashes in a second query, because with a join the database would scan the chain from its beginning.
  const seqs = rows.map(({ seq }) => seq);
  const links = await database.selectFrom('event_chain').select(['seq', 'hash']).where('seq', 'in', seqs).execute();
  const hashes = new Map(links.map(({ seq, hash }) => [seq, hash]));
  return rows.map((row) => ({ ...row, hash: hashes.get(row.seq) ?? null }));
}
