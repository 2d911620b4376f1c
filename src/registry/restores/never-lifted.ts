import { objectIn } from '../fields.js';
import type { RegistryDatabase } from '../registry-database.js';

/** A field of a record that can restrict a key or merchant. */
export type RestrictedField = 'status' | 'goLive' | 'expiresAt';

/** A restriction that a record in the store or in a gateway's report has, and that its row in the database lacks. */
export interface Restriction {
  readonly field: RestrictedField;
  /** Whether a state of the key or merchant, taken from `before` of an event, has the same restriction. */
  readonly isIn: (state: Readonly<Record<string, unknown>>) => boolean;
}

/** A record of a key or merchant in the store or in a gateway's report. */
export interface RestrictedRecord {
  readonly merchantId: string;
  /** Null if the record is a merchant. */
  readonly keyId: string | null;
  /** The revision (number) of the change that wrote the record. */
  readonly revision: number;
  /** The restrictions that the row in the database lacks. */
  readonly restrictions: readonly Restriction[];
}

/** The actions of the changes that can lift a restriction. */
const lifting = ['merchant.changed', 'merchant.lifted', 'key.lifted'];

/**
 * Returns the records with restrictions that no later change in the database has lifted, and the fields of these
 * restrictions. Such a record is from a change that the database has lost, even if the record has no higher revision
 * than the row: after a restore, the database assigns the revisions of lost changes to other changes. Leaves out
 * records that are older than the stored events.
 */
export async function neverLifted<Found extends RestrictedRecord>(
  database: RegistryDatabase,
  records: readonly Found[],
): Promise<ReadonlyMap<Found, ReadonlySet<RestrictedField>>> {
  const restricted = records.filter(({ restrictions }) => restrictions.length > 0);
  if (restricted.length === 0) return new Map();
  const oldest = await oldestRevision(database);
  const comparable = restricted.filter(({ revision }) => revision >= oldest);
  if (comparable.length === 0) return new Map();
  const rows = await database
    .selectFrom('events')
    .select(['merchant_id', 'key_id', 'revision', 'before'])
    .where('merchant_id', 'in', [...new Set(comparable.map(({ merchantId }) => merchantId))])
    .where('revision', '>', Math.min(...comparable.map(({ revision }) => revision)))
    .where('action', 'in', lifting)
    // Reads a merchant's events only if they changed its status or goLive: `before` of its other events can contain
    // allowlists of some hundred KiB.
    .where((it) =>
      it.or([it('key_id', 'is not', null), it('before', 'like', '%"status":%'), it('before', 'like', '%"goLive":%')]),
    )
    .execute();
  const changes = rows.map(({ before, ...row }) => ({ ...row, before: objectIn(before) ?? {} }));
  const lost = new Map<Found, ReadonlySet<RestrictedField>>();
  for (const record of comparable) {
    const { merchantId, keyId, revision, restrictions } = record;
    const later = changes.filter((change) => change.merchant_id === merchantId && change.key_id === keyId);
    const states = later.filter((change) => change.revision > revision).map(({ before }) => before);
    const kept = restrictions.filter(({ isIn }) => !states.some(isIn));
    if (kept.length > 0) lost.set(record, new Set(kept.map(({ field }) => field)));
  }
  return lost;
}

/**
 * Actions whose events are stored without a lock on the revision (number of the newest change). Such an event can have
 * a lower revision than an event that was stored earlier.
 */
const unlocked = ['attempt.refused', 'instance-key.pinned', 'merchant.read', 'record.forged', 'sign-in.failed'];

/**
 * Returns the revision (number of a change) from which on no event is missing in the database. Retention deletes old
 * events, but keeps some of them, such as resets. So events can be missing after the oldest stored one, and the result
 * is the revision of the first event after the last deleted one. Infinity if there are no events.
 */
async function oldestRevision(database: RegistryDatabase): Promise<number> {
  const { pruned_position } = await database
    .selectFrom('event_tail')
    .select('pruned_position')
    .executeTakeFirstOrThrow();
  const oldest = database
    .selectFrom('events')
    .select('events.revision')
    .where('events.action', 'not in', ['key.reset', ...unlocked])
    .orderBy('events.seq')
    .limit(1);
  // Events of earlier releases have no position. If retention has deleted no event with a position, `pruned_position`
  // is 0, and the oldest stored event gives the revision.
  const chained = oldest
    .innerJoin('event_chain', 'event_chain.seq', 'events.seq')
    .where('event_chain.position', '>', pruned_position);
  const first = await (pruned_position === 0 ? oldest : chained).executeTakeFirst();
  return first?.revision ?? Infinity;
}
