import { givenRows, takeLock } from '../../database/dialects.js';
import { sql } from '../../database/kysely.js';
import type { Clock, Logger } from '../../gateway/store-ports.js';
import type { UsageBatch } from '../../usage/batch.js';
import type { RegistryDatabase } from '../registry-database.js';
import { type KeyOwner, resolved, rowsOf } from './batch-rows.js';
import { type AddressDetail, readBatch, RefusedBatch } from './checked-batch.js';
import { addRows } from './store-rows.js';

/**
 * Called in the transaction that adds a batch, so each added batch is observed exactly once. If the returned promise
 * rejects, the batch is not added. In `batch`, each known key has its key id and its merchant. For unknown keys, these
 * two fields are null.
 */
export type UsageObserver = (transaction: RegistryDatabase, batch: UsageBatch, now: number) => Promise<void>;

/** Dependencies of UsageBatches. */
export interface UsageOptions {
  readonly database: RegistryDatabase;
  readonly clock: Clock;
  /** Whether full addresses or only networks are stored. Observers get the stored form. */
  readonly addresses: AddressDetail;
  readonly observers?: readonly UsageObserver[] | undefined;
  readonly logger?: Logger | undefined;
}

/**
 * The result of a batch. `added`: its counts are stored. `repeated`: it was added before. `early`: an earlier batch of
 * the same gateway process is still missing. `refused`: it is invalid and can never be added.
 */
export type BatchResult = 'added' | 'repeated' | 'early' | 'refused';

const betweenLogsMilliseconds = 60_000;

/**
 * Locks the usage tables against other writers until the transaction ends. Each registry process receives every batch,
 * so several processes add the same batch at the same time. Without this lock, their transactions would wait for each
 * other's row locks, or deadlock.
 */
export function lockUsage(transaction: RegistryDatabase): Promise<void> {
  return takeLock(transaction, 'merchant-gateway usage');
}

/** Adds the batches of usage counts that gateways send, each exactly once. */
export class UsageBatches {
  readonly #options: UsageOptions;
  readonly #results: Record<BatchResult, number> = { added: 0, repeated: 0, early: 0, refused: 0 };
  #loggedAt = -Infinity;

  constructor(options: UsageOptions) {
    this.#options = options;
  }

  /** How many batches this process has received, by result. */
  get results(): Readonly<Record<BatchResult, number>> {
    return this.#results;
  }

  /**
   * Adds a batch. Changes nothing if the batch was added before, or if an earlier batch of the same gateway process has
   * not arrived yet.
   * @returns JSON for the gateway. `sequence` is the highest stored sequence number of the gateway process. For a batch
   * that can never be added, the JSON contains `problem` instead, which says why.
   * @throws DatabaseError if the database is unavailable; nothing is stored then
   */
  async add(body: string): Promise<string> {
    try {
      const batch = await readBatch(body, this.#options.addresses);
      const { database } = this.#options;
      const { result, sequence } = await database
        .transaction()
        .execute((transaction) => this.#addTo(transaction, batch));
      this.#results[result] += 1;
      return JSON.stringify({ sequence });
    } catch (error) {
      if (!(error instanceof RefusedBatch)) throw error;
      this.#results.refused += 1;
      this.#log(error.message);
      return JSON.stringify({ problem: error.message });
    }
  }

  async #addTo(
    transaction: RegistryDatabase,
    batch: UsageBatch,
  ): Promise<{ readonly result: BatchResult; readonly sequence: number }> {
    const { clock, observers = [] } = this.#options;
    await lockUsage(transaction);
    const now = clock.now();
    const processes = transaction.selectFrom('usage_processes').select('sequence');
    const known = await processes.where('process', '=', batch.process).executeTakeFirst();
    const stored = known?.sequence ?? 0;
    if (batch.sequence <= stored) return { result: 'repeated', sequence: stored };
    // The gateway has deleted all batches up to `acknowledged`. If some of them are missing in the database, they are
    // lost, and the gap is stored.
    const lost = Math.max(stored, batch.acknowledged);
    // An earlier batch has not arrived yet. The gateway sends this batch again after the earlier one.
    if (batch.sequence > lost + 1) return { result: 'early', sequence: stored };
    if (lost > stored) {
      const gap = { process: batch.process, first: stored + 1, last: lost, found_at: now };
      await transaction.insertInto('usage_gaps').values(gap).execute();
      this.#options.logger?.error(
        { instance: batch.instance, batches: lost - stored },
        'request counts of a gateway are lost: the database was restored from a backup, or failed over to a replica without the last changes. API requests are not affected',
      );
    }
    await this.#storeProcess(transaction, batch, now);
    const complete = resolved(batch, await ownersOf(transaction, batch));
    await addRows(transaction, rowsOf(complete));
    for (const observe of observers) await observe(transaction, complete, now);
    return { result: 'added', sequence: batch.sequence };
  }

  async #storeProcess(transaction: RegistryDatabase, batch: UsageBatch, now: number): Promise<void> {
    const { process, instance, environment, sequence, from, to, isLast, dropped } = batch;
    const row = { process, instance, environment, sequence, first_at: from, last_at: to, received_at: now };
    const newest = { instance, sequence, last_at: to, received_at: now, is_ended: isLast ? 1 : 0 };
    const [refusals, rows] = [dropped.refusals, dropped.rows ?? 0];
    await transaction
      .insertInto('usage_processes')
      .values({ ...row, ...newest, dropped_refusals: refusals, dropped_rows: rows })
      .onConflict((conflict) =>
        conflict.column('process').doUpdateSet((it) => ({
          ...newest,
          dropped_refusals: it('usage_processes.dropped_refusals', '+', refusals),
          dropped_rows: it('usage_processes.dropped_rows', '+', rows),
        })),
      )
      .execute();
  }

  #log(problem: string): void {
    const now = this.#options.clock.now();
    if (now - this.#loggedAt < betweenLogsMilliseconds) return;
    this.#loggedAt = now;
    this.#options.logger?.error(
      { problem },
      'request counts of a gateway were rejected: these requests are not counted',
    );
  }
}

/** Finds the ids and merchants of the keys for which the gateway sent only a lookup id (the hash of a key). */
async function ownersOf(transaction: RegistryDatabase, { keys }: UsageBatch): Promise<Map<string, KeyOwner>> {
  const given = keys.flatMap(({ keyId, lookupId }) =>
    keyId === null && lookupId !== null ? [{ lookup_id: lookupId }] : [],
  );
  if (given.length === 0) return new Map();
  const { rows } = await sql<{ lookup_id: string; key_id: string; merchant_id: string }>`
    select api_keys.lookup_id, api_keys.key_id, api_keys.merchant_id
    from ${givenRows(transaction, given, { lookup_id: 'text' })}
    join api_keys on api_keys.lookup_id = given.lookup_id
  `.execute(transaction);
  return new Map(rows.map((row) => [row.lookup_id, { keyId: row.key_id, merchantId: row.merchant_id }]));
}
