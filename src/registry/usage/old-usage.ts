import { deleteFound } from '../../database/dialects.js';
import { sql } from '../../database/kysely.js';
import type { Clock, Logger, Timers } from '../../gateway/store-ports.js';
import { dayMilliseconds } from '../../usage/batch.js';
import { makeUnpublishedChange } from '../change.js';
import type { Author } from '../events/author.js';
import type { Projection } from '../projection/projection.js';
import type { RegistryContext } from '../registry-context.js';
import type { RegistryDatabase } from '../registry-database.js';
import { PassedTime, RetentionTask } from '../retention-task.js';
import type { RegistryTables } from '../tables.js';
import type { UnusualTables } from '../unusual/tables.js';
import type { UsageTables } from './tables.js';
import { lockUsage } from './usage-batches.js';

/**
 * Maximum number of rows that one transaction deletes from a table. New batches of usage counts wait for this
 * transaction, so a longer transaction would delay these batches.
 */
const rowsAtOnce = 5_000;

/** Dependencies of OldUsage. */
export interface OldUsageOptions {
  readonly database: RegistryDatabase;
  /** How long counts are kept, in days. */
  readonly hoursDays: number;
  /** How long details of refusals are kept, in days. */
  readonly refusalsDays: number;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly projection: Pick<Projection, 'lease' | 'settledIn'>;
  readonly logger?: Logger | undefined;
  /** A monotonic clock, in milliseconds. */
  readonly monotonic?: (() => number) | undefined;
}

type Table = keyof (UsageTables & UnusualTables);

/** The tables with counts, and the column with the time of a row. */
const countTables: readonly (readonly [Table, column: string])[] = [
  ...([['usage_hours', 'hour']] as const),
  ...(['usage_addresses', 'usage_agents', 'usage_hosts'] as const).map((table) => [table, 'day'] as const),
  ...([['usage_processes', 'received_at']] as const),
];

/**
 * Deletes usage older than the retention periods, in batches. Does nothing unless this process holds the lease (the
 * right to write to the gateways' store), so that only one process deletes.
 */
export class OldUsage {
  readonly #options: OldUsageOptions;
  readonly #passed: PassedTime;
  readonly #task: RetentionTask;

  constructor(options: OldUsageOptions) {
    this.#options = options;
    this.#passed = new PassedTime(options.monotonic);
    const { timers, logger } = options;
    this.#task = new RetentionTask({ timers, logger, what: 'request counts', forget: () => this.forget() });
  }

  /** Starts after a pause and runs until `stop()`. */
  start(): void {
    this.#task.start();
  }

  /** Stops after the current batch. */
  stop(): Promise<void> {
    return this.#task.stop();
  }

  /**
   * Deletes one batch of old rows of each table. Also deletes the gaps (records of lost batches) of gateway processes
   * that have no row left in `usage_processes`.
   * @returns true if a table could have more old rows to delete
   */
  async forget(): Promise<boolean> {
    const { database, hoursDays, refusalsDays, clock, projection } = this.#options;
    if (projection.settledIn === null || !(await projection.lease.take())) return false;
    const moment = await this.#passed.atMost(clock.now(), () => newestBatch(database));
    if (moment === null) return false;
    const since = (days: number): number => moment - days * dayMilliseconds;
    let isMore = false;
    for (const [table, column] of [...countTables, ['usage_refusals', 'at'] as const]) {
      const until = since(table === 'usage_refusals' ? refusalsDays : hoursDays);
      const time = sql.id('found', column);
      const deleted = await deleteSome(database, table, sql`where ${time} < ${until} order by ${time}`);
      isMore ||= deleted === rowsAtOnce;
    }
    await deleteSome(
      database,
      'usage_gaps',
      sql`where not exists (select 1 from usage_processes where usage_processes.process = found.process)`,
    );
    return isMore;
  }
}

/** Returns when the newest batch was added, in milliseconds since 1970; null if there is no batch. */
async function newestBatch(database: RegistryDatabase): Promise<number | null> {
  const newest = database.selectFrom('usage_processes').select('received_at').orderBy('received_at', 'desc').limit(1);
  return (await newest.executeTakeFirst())?.received_at ?? null;
}

/** Deletes at most `rowsAtOnce` rows of a table, in a transaction of its own. Returns the number of deleted rows. */
function deleteSome(database: RegistryDatabase, table: Table, found: ReturnType<typeof sql>): Promise<number> {
  return database.transaction().execute(async (transaction) => {
    await lockUsage(transaction);
    return deleteFound<RegistryTables>(transaction, table, sql`${found} limit ${sql.lit(rowsAtOnce)}`);
  });
}

/**
 * The tables with rows of a merchant. `usage_merchants` is not among them: it keeps the number of the merchant's last
 * refusal, so that later refusals get higher numbers.
 */
const merchantTables = [
  ...(['usage_hours', 'usage_addresses', 'usage_agents', 'usage_hosts', 'usage_keys', 'usage_refusals'] as const),
  'unusual_findings',
] as const;
/** The tables with the usual behaviour of each key. The detection of unusual use reads these tables. */
const keyTables = ['key_habits', 'usual_patterns'] as const;

/**
 * Deletes all stored usage of a merchant, its findings, and the undelivered webhook messages about them, in batches.
 * Stores the event first, so that even a partial deletion is recorded. If the deletion fails half-way, call this
 * function again.
 * @returns the number of deleted rows
 */
export async function forgetUsage(
  { database, clock }: Pick<RegistryContext, 'database' | 'clock'>,
  author: Author,
  merchantId: string,
): Promise<number> {
  const event = { action: 'usage.forgotten', merchantId, keyId: null, before: null, after: null } as const;
  await makeUnpublishedChange({ database, clock }, author, () => Promise.resolve({ result: null, events: [event] }));
  const ofMerchant = sql`where found.merchant_id = ${merchantId}`;
  const ofItsKeys = sql`where found.key_id in (select key_id from api_keys where merchant_id = ${merchantId})`;
  // A message has no column for the merchant, so the condition searches the body, which is the JSON of a finding. It
  // does not use LIKE, which would ignore case in SQLite.
  const named = `"merchantId":${JSON.stringify(merchantId)}`;
  const aboutMerchant = sql`where replace(found.body, ${named}, '') <> found.body`;
  const conditions = [
    ...merchantTables.map((table) => [table, ofMerchant] as const),
    ...keyTables.map((table) => [table, ofItsKeys] as const),
    ['webhooks', aboutMerchant] as const,
  ];
  let all = 0;
  for (const [table, found] of conditions) {
    let deleted: number;
    do {
      deleted = await deleteSome(database, table, found);
      all += deleted;
    } while (deleted === rowsAtOnce);
  }
  return all;
}
