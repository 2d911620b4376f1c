import type { Change } from '../change.js';

/**
 * Takes a key or merchant off the list of records that are held back after a restore. Called when a person decides on
 * its state, for example revokes the key. Otherwise `lift`, which gives a record its former state, would undo that
 * decision later.
 * @param id the key id or the merchant id
 * @returns whether the record was held back
 */
export async function settle({ transaction }: Change, id: string): Promise<boolean> {
  const { numDeletedRows } = await transaction.deleteFrom('held_back').where('id', '=', id).executeTakeFirstOrThrow();
  return Number(numDeletedRows) > 0;
}
