import type { Author } from './events/author.js';
import { ulid } from 'ulid';
import type { NewEvent } from './events/repository.js';
import { recordEvents } from './events/repository.js';
import type { RegistryContext } from './registry-context.js';
import type { RegistryDatabase } from './registry-database.js';

/** A change whose transaction is in progress. */
export interface Change {
  readonly transaction: RegistryDatabase;
  /** The revision of this change. The next change that gateways need to know gets a higher one. */
  readonly revision: number;
  readonly now: number;
}

/**
 * Result of a change: a value for the caller, the events to store, and the names of the records to write to the store.
 * `changed` is null if nothing changed.
 */
export interface Outcome<Result> {
  readonly result: Result;
  readonly changed: { readonly events: readonly NewEvent[]; readonly records: readonly string[] } | null;
}

type ChangeContext = Pick<RegistryContext, 'database' | 'clock' | 'onChange'>;

/**
 * Makes one change, with its events and outbox rows, in one transaction. It increments the revision first, which locks
 * that row. So changes are committed one after another, in the order of their revisions and without gaps.
 */
export async function makeChange<Result>(
  { database, clock, onChange }: ChangeContext,
  author: Author,
  act: (change: Change) => Promise<Outcome<Result>>,
): Promise<Result> {
  try {
    const result = await database.transaction().execute(async (transaction) => {
      const { value: revision } = await transaction
        .updateTable('revision')
        .set((it) => ({ value: it('value', '+', 1) }))
        .returning('value')
        .executeTakeFirstOrThrow();
      const now = clock.now();
      const change = ulid(now);
      const { result, changed } = await act({ transaction, revision, now });
      if (changed === null) throw new NothingChanged(result);
      await recordEvents(transaction, changed.events, { at: now, author, revision });
      await transaction
        .insertInto('outbox')
        .values(changed.records.map((name) => ({ revision, name, change })))
        .execute();
      return result;
    });
    onChange();
    return result;
  } catch (error) {
    if (error instanceof NothingChanged) return error.result as Result;
    throw error;
  }
}

/** Result of a change that gateways need not know, its events, and their author if only the change proves who that is. */
export interface UnpublishedOutcome<Result> {
  readonly result: Result;
  readonly events: readonly NewEvent[];
  readonly provenAuthor?: Author;
}

/**
 * Makes one change that gateways need not know, with its events, in one transaction. It locks the revision but does not
 * increment it, so such changes are committed one after another too.
 */
export function makeUnpublishedChange<Result>(
  { database, clock }: Pick<RegistryContext, 'database' | 'clock'>,
  author: Author,
  act: (change: Change) => Promise<UnpublishedOutcome<Result>>,
): Promise<Result> {
  return database.transaction().execute(async (transaction) => {
    const revision = await lockRevision(transaction);
    const now = clock.now();
    const { result, events, provenAuthor = author } = await act({ transaction, revision, now });
    await recordEvents(transaction, events, { at: now, author: provenAuthor, revision });
    return result;
  });
}

/** Locks the revision until the end of the transaction, so that changes are committed before it or after it. */
export async function lockRevision(transaction: RegistryDatabase): Promise<number> {
  const { value } = await transaction
    .updateTable('revision')
    .set((it) => ({ value: it.ref('value') }))
    .returning('value')
    .executeTakeFirstOrThrow();
  return value;
}

/** Thrown to roll the transaction back if nothing changed. The next change then gets the same revision. */
class NothingChanged extends Error {
  constructor(readonly result: unknown) {
    super('nothing was changed');
  }
}
