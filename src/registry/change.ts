import type { Author } from './events/author.js';
import { ulid } from 'ulid';
import type { NewEvent } from './events/repository.js';
import { recordEvents } from './events/repository.js';
import type { RegistryContext } from './registry-context.js';
import type { RegistryDatabase } from './registry-database.js';

/** A change whose transaction is in progress. */
export interface Change {
  readonly transaction: RegistryDatabase;
  /**
   * The number of this change, if gateways have to know the change. Other changes get no number of their own: for them,
   * this is the number of the newest change that has one.
   */
  readonly revision: number;
  readonly now: number;
}

/**
 * The outcome of a change. The caller gets `result`. `changed` is null if nothing changed. Otherwise the database
 * stores its `events`. It also stores the names in `records`: the records with these names are later written to the
 * gateways' store.
 */
export interface Outcome<Result> {
  readonly result: Result;
  readonly changed: { readonly events: readonly NewEvent[]; readonly records: readonly string[] } | null;
}

type ChangeContext = Pick<RegistryContext, 'database' | 'clock' | 'onChange'>;

/**
 * Makes one change in one transaction, with its events and its outbox rows (names of the records to write to the
 * gateways' store). The first statement increments the revision, the number of the newest change. This locks the row of
 * the revision, so changes are committed in the order of their revisions, without gaps.
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

/**
 * The outcome of a change that gateways need not know. `provenAuthor` replaces the author of the events if the author
 * became known only during the change, for example in a sign-in.
 */
export interface UnpublishedOutcome<Result> {
  readonly result: Result;
  readonly events: readonly NewEvent[];
  readonly provenAuthor?: Author;
}

/**
 * Makes one change that gateways need not know, with its events, in one transaction. Locks the row of the revision
 * (number of the newest change), so that no other change is committed at the same time. Does not increment the
 * revision.
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

/**
 * Locks the row of the revision (number of the newest change) until the end of the transaction, so that no other change
 * is committed meanwhile.
 * @returns the current revision
 */
export async function lockRevision(transaction: RegistryDatabase): Promise<number> {
  const { value } = await transaction
    .updateTable('revision')
    .set((it) => ({ value: it.ref('value') }))
    .returning('value')
    .executeTakeFirstOrThrow();
  return value;
}

/**
 * Thrown to roll the transaction back if nothing changed, so that the revision (number of the newest change) is not
 * incremented.
 */
class NothingChanged extends Error {
  constructor(readonly result: unknown) {
    super('nothing was changed');
  }
}
