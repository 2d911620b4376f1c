import { ulid } from 'ulid';
import type { NewEvent } from './events/repository.js';
import { recordEvents } from './events/repository.js';
import type { RegistryContext } from './registry-context.js';
import type { RegistryDatabase } from './registry-database.js';

/** A change while it is made. */
export interface Change {
  readonly transaction: RegistryDatabase;
  /** Its number, which the next change follows. */
  readonly revision: number;
  readonly now: number;
}

/** What was changed: for the caller, for the events, and the names of the records to project. Null: nothing was. */
export interface Outcome<Result> {
  readonly result: Result;
  readonly changed: { readonly events: readonly NewEvent[]; readonly records: readonly string[] } | null;
}

type ChangeContext = Pick<RegistryContext, 'database' | 'clock' | 'onChange'>;

/**
 * Makes one change with its events and its part of the outbox: all of it or nothing. Counting up the revision comes
 * first, and makes changes wait for each other: they are committed in the order of their numbers, and none is left out.
 */
export async function makeChange<Result>(
  { database, clock, onChange }: ChangeContext,
  actor: string,
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
      await recordEvents(transaction, changed.events, { at: now, actor, revision });
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

/** Undoes the transaction, so that the number goes to the next change. */
class NothingChanged extends Error {
  constructor(readonly result: unknown) {
    super('nothing was changed');
  }
}
