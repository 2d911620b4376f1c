import type { Selectable } from '../../database/kysely.js';
import { entryHash, MerkleRange } from '../../evidence/merkle-tree.js';
import type { NoteSigner } from '../../evidence/signed-note.js';
import { listEntry, signListHead } from '../../evidence/submission.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';

/**
 * Locks the list of checkpoints (signed states of access logs) until the end of the transaction. Otherwise two
 * concurrent submissions could both pass a check that only one of them should pass, for example if two gateway
 * processes claim to continue the same log.
 */
export async function lockList(transaction: RegistryDatabase): Promise<void> {
  await transaction.updateTable('checkpoint_tree').set({ id: 1 }).execute();
}

/** Appends a checkpoint to the list and its Merkle tree. Call this in the transaction that stores the checkpoint. */
export async function appendToList(transaction: RegistryDatabase, receivedAt: number, note: string): Promise<void> {
  const tree = await transaction
    .updateTable('checkpoint_tree')
    .set((it) => ({ size: it('size', '+', 1) }))
    .returning(['size', 'subtrees'])
    .executeTakeFirstOrThrow();
  const index = tree.size - 1;
  const range = MerkleRange.ofTree(index, subtreesIn(tree.subtrees));
  range.append(entryHash(listEntry(receivedAt, note)));
  await transaction.updateTable('checkpoint_tree').set({ subtrees: range.subtrees.join() }).execute();
  await transaction.insertInto('checkpoint_list').values({ seq: index, received_at: receivedAt, note }).execute();
}

const startForm = /\nstart (\S+)\nprevious \S+ (\d+) /;

/**
 * Finds the start checkpoint of a run in the list. A run is the part of an access log that one process writes to one
 * file. Returns the checkpoint's time, and the number of lines that the previous run had according to the checkpoint.
 * Null if the list lacks the checkpoint.
 */
export async function listedStart(
  database: RegistryDatabase,
  { origin, began_at }: Pick<Selectable<RegistryTables['runs']>, 'origin' | 'began_at'>,
): Promise<{ readonly at: number; readonly previousSize: number } | null> {
  const listed = await database
    .selectFrom('checkpoint_list')
    .select('note')
    .where('received_at', '=', began_at)
    .execute();
  const { note = '' } = listed.find((one) => one.note.startsWith(`${origin}\n`)) ?? {};
  const [, time, size] = startForm.exec(note) ?? [];
  return time === undefined ? null : { at: Date.parse(time), previousSize: Number(size) };
}

/** Returns the signed head of the list: the size of the list and the root hash of its Merkle tree. */
export async function signedHead(database: RegistryDatabase, signer: NoteSigner): Promise<string> {
  const { size, subtrees } = await database.selectFrom('checkpoint_tree').selectAll().executeTakeFirstOrThrow();
  const root = MerkleRange.ofTree(size, subtreesIn(subtrees)).rootOf({ from: 0, to: size });
  return signListHead({ size, root: Buffer.from(root, 'hex') }, signer);
}

function subtreesIn(text: string): string[] {
  return text === '' ? [] : text.split(',');
}
