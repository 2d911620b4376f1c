import { hash } from 'node:crypto';
import type { Selectable } from '../../database/kysely.js';
import { parseNote } from '../../evidence/signed-note.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';

/**
 * How long the registry remembers checkpoints that newer checkpoints of the same run have replaced. A checkpoint is a
 * signed state of a run. A run is the part of an access log that one process writes to one file. A gateway that got no
 * reply submits its checkpoint again, and the registry must recognise the checkpoint. The second submission can wait in
 * Redis for minutes, or in a file until the gateway's next start.
 */
const retentionMilliseconds = 7 * 86_400_000;

type Stored = Pick<Selectable<RegistryTables['runs']>, 'note' | 'received_at'>;

/**
 * Returns the time at which the registry accepted the checkpoint with this text. Null if no such checkpoint is stored.
 * A replaced checkpoint stays stored for at least a week after it was received.
 * @param newest the newest stored checkpoint of the run; undefined if the run is unknown
 */
export async function acceptedAt(
  transaction: RegistryDatabase,
  text: string,
  newest: Stored | undefined,
): Promise<number | null> {
  if (newest === undefined) return null;
  if (parseNote(newest.note).text === text) return newest.received_at;
  const earlier = transaction.selectFrom('earlier_checkpoints').select('received_at');
  return (await earlier.where('digest', '=', digestOf(text)).executeTakeFirst())?.received_at ?? null;
}

/**
 * Stores an accepted checkpoint among the replaced ones. Call this before a newer checkpoint of the same run replaces
 * it.
 */
export async function addEarlier(transaction: RegistryDatabase, { note, received_at }: Stored): Promise<void> {
  const row = { digest: digestOf(parseNote(note).text), received_at };
  await transaction
    .insertInto('earlier_checkpoints')
    .values(row)
    .onConflict((conflict) => conflict.doNothing())
    .execute();
}

/** Deletes replaced checkpoints that were received more than a week ago. */
export async function forgetEarlier(transaction: RegistryDatabase, now: number): Promise<void> {
  const old = transaction.deleteFrom('earlier_checkpoints').where('received_at', '<', now - retentionMilliseconds);
  await old.execute();
}

function digestOf(text: string): string {
  return hash('sha256', text, 'base64');
}
