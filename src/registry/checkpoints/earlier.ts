import { hash } from 'node:crypto';
import type { Selectable } from '../../database/kysely.js';
import { parseNote } from '../../evidence/signed-note.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';

/**
 * How long the registry remembers checkpoints (signed states of access logs) that newer ones have replaced. A gateway
 * that got no reply submits its checkpoint again. That can be minutes later, because the message waits in Redis, or at
 * the gateway's next start, because the message waits in a file.
 */
const retentionMilliseconds = 7 * 86_400_000;

type Stored = Pick<Selectable<RegistryTables['runs']>, 'note' | 'received_at'>;

/**
 * Returns the time at which the registry accepted the checkpoint (signed state of a log) with this text. For a week,
 * also finds a checkpoint that a newer one of the same run (log of one process) has replaced. Null if no such
 * checkpoint is found.
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
 * Stores an accepted checkpoint (signed state of a log) among the replaced ones. Call this before a newer checkpoint of
 * the same run (log of one process) replaces it.
 */
export async function addEarlier(transaction: RegistryDatabase, { note, received_at }: Stored): Promise<void> {
  const row = { digest: digestOf(parseNote(note).text), received_at };
  await transaction
    .insertInto('earlier_checkpoints')
    .values(row)
    .onConflict((conflict) => conflict.doNothing())
    .execute();
}

/** Deletes replaced checkpoints (signed states of logs) that were received more than a week ago. */
export async function forgetEarlier(transaction: RegistryDatabase, now: number): Promise<void> {
  const old = transaction.deleteFrom('earlier_checkpoints').where('received_at', '<', now - retentionMilliseconds);
  await old.execute();
}

function digestOf(text: string): string {
  return hash('sha256', text, 'base64');
}
