import { isPostgres } from '../../database/dialects.js';
import { type Selectable, sql } from '../../database/kysely.js';
import { type ChainedEvent, type ChainHead, eventHash, signChainHead } from '../../evidence/event-chain.js';
import type { NoteSigner } from '../../evidence/signed-note.js';
import { fillPage } from '../exports/fill-page.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';

type EventRow = Selectable<RegistryTables['events']>;
type NewEventRow = Omit<EventRow, 'seq'>;

/**
 * Stores events and appends them to the hash chain of the audit trail. Call this in the transaction of the change.
 * @returns the sequence number of the last event
 */
export async function appendEvents(transaction: RegistryDatabase, events: readonly NewEventRow[]): Promise<number> {
  // Locks the row with the end of the chain, so that writers append one after another. Otherwise two events could get
  // the same position.
  const tail = await transaction
    .updateTable('event_tail')
    .set((it) => ({ position: it('position', '+', events.length) }))
    .returning(['position', 'hash'])
    .executeTakeFirstOrThrow();
  const stored = await transaction.insertInto('events').values(events).returningAll().execute();
  const before = { position: tail.position - events.length, hash: tail.hash };
  let { position, hash } = before;
  let last = 0;
  const links = stored
    .toSorted((one, other) => one.seq - other.seq)
    .map((row) => {
      [position, hash] = [position + 1, eventHash(hash, eventContent(row))];
      last = row.seq;
      return { position, seq: row.seq, hash };
    });
  await transaction.insertInto('event_chain').values(links).execute();
  await transaction.updateTable('event_tail').set({ hash }).execute();
  return last;
}

/** Returns all columns of an event as JSON. The hash of the event covers this text. */
function eventContent(row: EventRow): string {
  const { seq, at, actor, action, merchant_id, key_id, before, after, revision } = row;
  const { administrator_id, proof, claimed, source, request_id, reason } = row;
  return JSON.stringify({
    ...{ seq, at, actor, action, merchant_id, key_id, before, after, revision },
    ...{ administrator_id, proof, claimed, source, request_id, reason },
  });
}

/** The state of the hash chain of events. */
export interface ChainState {
  readonly head: ChainHead;
  /**
   * The position of the last event that was deleted after the retention period. The chain now begins after this
   * position. If no chained event was deleted, `position` is 0, and `at` and `note` are null. `note` is the signature
   * of the position and its hash. It is also null if the registry had no signing key.
   */
  readonly pruned: ChainHead & { readonly at: number | null; readonly note: string | null };
  /** Number of stored events that should be in the chain but are not, and their lowest sequence number. */
  readonly unchained: { readonly count: number; readonly firstSeq: number | null };
  /** Number of events that earlier releases stored, before the chain existed. */
  readonly former: number;
  /** The end of the chain with a new signature; null without a signing key. */
  readonly note: string | null;
}

/** Reads the state of the chain. */
export async function chainState(database: RegistryDatabase, signer: NoteSigner | null): Promise<ChainState> {
  const tail = await database.selectFrom('event_tail').selectAll().executeTakeFirstOrThrow();
  const head = { position: tail.position, hash: tail.hash };
  // Only events of earlier releases are allowed to have no position. They precede the chain, have no `proof`, and have
  // sequence numbers of at least 1. The queries check all of this. `unchained_seq`, the stored number of the last of
  // these events, is not enough, because a user of the database can change it.
  const firstChained = await database
    .selectFrom('event_chain')
    .select((it) => it.fn.min<number | null>('seq').as('seq'))
    .executeTakeFirstOrThrow();
  const lastFormer = Math.min(tail.unchained_seq, (firstChained.seq ?? Infinity) - 1);
  const unchained = database
    .selectFrom('events')
    .leftJoin('event_chain', 'event_chain.seq', 'events.seq')
    .select((it) => [it.fn.countAll<number>().as('count'), it.fn.min<number | null>('events.seq').as('first')])
    .where('event_chain.seq', 'is', null);
  const all = await unchained.executeTakeFirstOrThrow();
  const added = await unchained
    .where((it) => it.or([it('events.seq', '>', lastFormer), it('events.seq', '<', 1), it('proof', 'is not', null)]))
    .executeTakeFirstOrThrow();
  return {
    head,
    pruned: {
      ...{ position: tail.pruned_position, hash: tail.pruned_hash },
      ...{ at: tail.pruned_at, note: tail.pruned_note },
    },
    unchained: { count: added.count, firstSeq: added.first },
    former: all.count - added.count,
    note: signer === null ? null : signChainHead(head, signer),
  };
}

/**
 * One page of the hash chain of events, in the order of positions, and the checkpoints (signatures) for positions on
 * this page.
 */
export interface ChainPage {
  readonly events: readonly ChainedEvent[];
  readonly checkpoints: readonly { readonly position: number; readonly signedAt: number; readonly note: string }[];
  /** Position after which the next page begins; null at the end. */
  readonly next: number | null;
}

/**
 * Rows per query. The number is low to limit the memory: the two states (`before` and `after`) in one row can have 600
 * KiB.
 */
const readAtOnce = 50;

/** Reads one page of the hash chain of events. The page begins after the position `after`. */
export async function readChain(database: RegistryDatabase, after: number): Promise<ChainPage> {
  const { entries: events, last: next } = await fillPage(String(after), {
    readAtOnce,
    read: (place, limit) => readLinks(database, Number(place), limit),
    idOf: ({ position }) => String(position),
    entryOf: ({ position, hash, linked_seq, ...row }) => ({
      ...{ position, hash },
      content: row.seq === null ? null : eventContent({ ...(row as EventRow), seq: linked_seq }),
    }),
  });
  const last = events.at(-1)?.position ?? after;
  const checkpoints = await database
    .selectFrom('event_checkpoints')
    .selectAll()
    .where('position', '>', after)
    .where('position', '<=', last)
    .orderBy('position')
    .execute();
  return {
    events,
    checkpoints: checkpoints.map(({ position, signed_at, note }) => ({ position, signedAt: signed_at, note })),
    next: next === null ? null : Number(next),
  };
}

function readLinks(database: RegistryDatabase, after: number, limit: number) {
  return database
    .selectFrom('event_chain as link')
    .leftJoin('events', 'events.seq', 'link.seq')
    .selectAll('events')
    .select(['link.position', 'link.hash', 'link.seq as linked_seq'])
    .where('link.position', '>', after)
    .orderBy('link.position')
    .limit(limit)
    .execute();
}

/**
 * Deletes the given old events, their positions in the chain, and the signatures of all positions before the last
 * deleted position. Stores the hash at that position, with which the rest of the chain can be verified, and a signature
 * of this hash (null if there is no signer). An older event that is kept can no longer be verified.
 */
export async function pruneEvents(
  database: RegistryDatabase,
  seqs: readonly number[],
  { now, signer }: { readonly now: number; readonly signer: NoteSigner | null },
): Promise<void> {
  if (seqs.length === 0) return;
  await database.transaction().execute(async (transaction) => {
    await transaction.updateTable('event_tail').set({ id: 1 }).where('id', '=', 1).execute();
    const last = await transaction
      .selectFrom('event_chain')
      .select(['position', 'hash'])
      .where('seq', 'in', seqs)
      .orderBy('seq', 'desc')
      .limit(1)
      .executeTakeFirst();
    const end = last ?? { position: 0, hash: '' };
    const note = last === undefined || signer === null ? null : signChainHead(last, signer, 'events/pruned');
    if (isPostgres(database)) {
      // This SQL function runs with the rights of the tables' owner, because the registry's own database user need not
      // have the right to delete events.
      await sql`select prune_events(${seqs}::bigint[], ${end.position}, ${end.hash}, ${now}, ${note})`.execute(
        transaction,
      );
      return;
    }
    await transaction
      .updateTable('event_tail')
      .set({ pruned_position: end.position, pruned_hash: end.hash, pruned_at: now, pruned_note: note })
      .where('id', '=', 1)
      .where('pruned_position', '<', end.position)
      .execute();
    await transaction.deleteFrom('events').where('seq', 'in', seqs).execute();
    await transaction.deleteFrom('event_chain').where('seq', 'in', seqs).execute();
    await transaction.deleteFrom('event_checkpoints').where('position', '<', end.position).execute();
  });
}

/**
 * Signs the end of the hash chain of events and stores the signature, unless a signature of this end is stored already.
 * @returns the signature with the signed text; null if no event was added since the last signature
 */
export async function storeCheckpoint(
  database: RegistryDatabase,
  signer: NoteSigner,
  now: number,
): Promise<string | null> {
  const { position, hash } = await database.selectFrom('event_tail').selectAll().executeTakeFirstOrThrow();
  if (position === 0) return null;
  const note = signChainHead({ position, hash }, signer);
  const { numInsertedOrUpdatedRows } = await database
    .insertInto('event_checkpoints')
    .values({ position, signed_at: now, note })
    .onConflict((it) => it.doNothing())
    .executeTakeFirstOrThrow();
  return numInsertedOrUpdatedRows === 0n ? null : note;
}
