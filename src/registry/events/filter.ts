import { parseIpAddress } from '../../policy/ip-address.js';
import type { Problem } from '../../rest/envelope.js';
import { Refusal } from '../../rest/refusal.js';
import type { Static, TObject } from '../../typebox/typebox.js';
import { timesIn } from '../fields.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { eventFilters } from './schema.js';

/** The filters of a query, as clients send them. */
export type GivenFilter = Static<TObject<typeof eventFilters>>;

/** A filter of events. An event must match every given field. */
export interface EventFilter extends Omit<GivenFilter, 'seq' | 'source' | 'revision' | 'since' | 'until'> {
  readonly seq?: number | undefined;
  /** The IP address of the client, in canonical form. */
  readonly source?: string | undefined;
  readonly revision?: number | undefined;
  /** Earliest time of the events, inclusive, in milliseconds since 1970. */
  readonly since?: number | undefined;
  /** Latest time of the events, exclusive, in milliseconds since 1970. */
  readonly until?: number | undefined;
  /**
   * The id of the merchant of which the caller is a member: only events of this merchant match. Null: events of all
   * merchants match.
   */
  readonly memberOf?: string | null;
}

/**
 * Parses and checks the filter fields of a query.
 * @throws Refusal 422 for a malformed time or address, and if `until` is not later than `since`
 */
export function eventFilterOf({ seq, revision, since, until, source, ...given }: GivenFilter): EventFilter {
  const problems: Problem[] = [];
  const address = source === undefined ? undefined : parseIpAddress(source);
  if (address === null) problems.push({ path: 'source', message: 'source must be an IP address' });
  const range = timesIn({ since, until }, problems);
  const [first, ...others] = problems;
  if (first !== undefined) throw Refusal.invalid([first, ...others]);
  const numbers = { seq: numberIn(seq), revision: numberIn(revision) };
  return { ...given, ...numbers, ...range, source: address?.text };
}

function numberIn(text: string | undefined): number | undefined {
  return text === undefined ? undefined : Number(text);
}

/** The column for each filter field that must match exactly. */
const columns = {
  ...({ seq: 'seq', merchantId: 'merchant_id', memberOf: 'merchant_id', action: 'action', actor: 'actor' } as const),
  ...({ administratorId: 'administrator_id', proof: 'proof', claimed: 'claimed', source: 'source' } as const),
  ...({ requestId: 'request_id', reason: 'reason', revision: 'revision' } as const),
};

/**
 * Selects the events that match a filter. Indexes exist for the merchant, the key, the request and the sequence number.
 * A filter without any of these fields scans the table, which takes at most a second for 1,000,000 events. A further
 * index would slow down each insert.
 */
export function eventsMatching(database: RegistryDatabase, { keyId, since, until, ...exact }: EventFilter) {
  let wanted = database.selectFrom(
    (keyId === undefined ? everything(database) : eventsAbout(database, keyId)).as('events'),
  );
  for (const name of Object.keys(columns) as (keyof typeof columns)[]) {
    const value = exact[name];
    if (value !== undefined && value !== null) wanted = wanted.where(columns[name], '=', value);
  }
  if (since !== undefined) wanted = wanted.where('at', '>=', since);
  if (until !== undefined) wanted = wanted.where('at', '<', until);
  return wanted;
}

function everything(database: RegistryDatabase) {
  return database.selectFrom('events').selectAll();
}

/**
 * Returns the events about a key, including the import that created it. An import stores one event for many keys, so
 * this event is found by its revision (number of the change). A union lets each query use an index; with `or`, the
 * database would scan the table.
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
