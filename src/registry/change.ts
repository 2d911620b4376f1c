import type { Author } from './events/author.js';
import { ulid } from 'ulid';
import { limitMemberChanges } from './events/member-limits.js';
import type { NewEvent } from './events/repository.js';
import { recordEvents } from './events/repository.js';
import type { RegistryContext } from './registry-context.js';
import type { RegistryDatabase } from './registry-database.js';

/** A change whose transaction is in progress. */
export interface Change {
  readonly transaction: RegistryDatabase;
  /**
   * The number of this change, if gateways have to know the change. All other changes have no number; their `revision`
   * is the number of the newest numbered change.
   */
  readonly revision: number;
  readonly now: number;
}

/**
 * The outcome of a change. `makeChange` returns `result`. `changed` is null if nothing changed. Otherwise `events` are
 * stored in the database. The names in `records` are stored in the outbox: the records with these names are later
 * written to the gateways' store.
 */
export interface Outcome<Result> {
  readonly result: Result;
  readonly changed: { readonly events: readonly NewEvent[]; readonly records: readonly string[] } | null;
}

type ChangeContext = Pick<RegistryContext, 'database' | 'clock' | 'onChange'>;

/**
 * Makes one change in one transaction, with its events and its outbox rows. An outbox row names a record to write to
 * the gateways' store. The first statement increments the revision, the number of the newest change. This locks the row
 * of the revision, so changes are committed in the order of their revisions, without gaps.
 * @throws Refusal 429 if the author is a member of a merchant whose members have made too many changes
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
      await limitMemberChanges(transaction, author, changed.events, now);
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
 * Makes one change that gateways need not know, with its events, in one transaction. Does not increment the revision,
 * but locks the row of the revision, so that no other change is committed at the same time.
 * @throws Refusal 429 if the author is a member of a merchant whose members have made too many changes
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
    await limitMemberChanges(transaction, provenAuthor, events, now);
    await recordEvents(transaction, events, { at: now, author: provenAuthor, revision });
    return result;
  });
}

/**
 * Locks the row of the revision until the end of the transaction, so that no other change is committed meanwhile.
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

/** Thrown to roll the transaction back if nothing changed, so that the revision is not incremented. */
class NothingChanged extends Error {
  constructor(readonly result: unknown) {
    super('nothing was changed');
  }
}
