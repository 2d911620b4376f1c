import { ulid } from 'ulid';
import type { GatewayInbox } from '../../gateway/channel-ports.js';
import type { Clock, Logger, Timers } from '../../gateway/store-ports.js';
import { type Page, type Paging, rangeOf } from '../../rest/paging.js';
import type { RegistryDatabase } from '../registry-database.js';

/**
 * Kinds of problems that checkpoints of a gateway's access log can show. A run is the part of the log that one process
 * wrote.
 * - `cut`: the end of the log was removed, or an older copy replaced the log;
 * - `fork`: two versions of the same lines are signed, or two logs continue the same run;
 * - `previous`: the log continues an unknown run;
 * - `unknown`: a checkpoint arrived, but the start checkpoint of its run never did;
 * - `replay`: a submitted checkpoint is older than the newest one, and the registry has no record of accepting it;
 * - `key`: the instance's key is not pinned (stored as valid) or no longer valid, or the signature with the run's own
 *   key is missing;
 * - `silent`: the process stopped without an end checkpoint, and no other process continued the log; or the next run,
 *   which an end checkpoint announced, never began;
 * - `clock`: the times contradict each other or the registry's clock.
 */
export const findingKinds = ['cut', 'fork', 'previous', 'unknown', 'replay', 'key', 'silent', 'clock'] as const;

/** The kind of a finding (problem with an access log). */
export type WitnessFindingKind = (typeof findingKinds)[number];

/** A finding (problem with an access log), as the database stores it. */
interface KeptFinding {
  readonly id: string;
  readonly found_at: number;
  readonly kind: WitnessFindingKind;
  readonly origin: string;
  readonly message: string;
}

/**
 * Stores a finding (problem with an access log). Stores equal findings only once, because gateways submit rejected
 * checkpoints again.
 */
export async function reportFinding(database: RegistryDatabase, finding: KeptFinding): Promise<void> {
  const { kind, origin, message } = finding;
  const same = database.selectFrom('checkpoint_findings').select('id').where('origin', '=', origin);
  const known = await same.where('kind', '=', kind).where('message', '=', message).executeTakeFirst();
  if (known !== undefined) return;
  await database.insertInto('checkpoint_findings').values(finding).execute();
}

/** Returns one page of the findings (problems with access logs), newest first. */
export async function listFindings(database: RegistryDatabase, paging: Paging): Promise<Page<KeptFinding>> {
  const { offset, limit } = rangeOf(paging);
  const all = database.selectFrom('checkpoint_findings');
  const { total } = await all.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const rows = await all
    .selectAll()
    .orderBy('found_at', 'desc')
    .orderBy('id', 'desc')
    .offset(offset)
    .limit(limit)
    .execute();
  return { items: rows as KeptFinding[], totalRecords: total };
}

/** Counts the findings (problems with access logs) of each kind, with 0 for kinds without findings. */
export async function countFindings(database: RegistryDatabase): Promise<ReadonlyMap<string, number>> {
  const rows = await database
    .selectFrom('checkpoint_findings')
    .select(['kind', (it) => it.fn.countAll<number>().as('count')])
    .groupBy('kind')
    .execute();
  return new Map([
    ...findingKinds.map((kind): [string, number] => [kind, 0]),
    ...rows.map((row): [string, number] => [row.kind, row.count]),
  ]);
}

/** Dependencies of SilentRuns. */
export interface SilenceOptions {
  readonly database: RegistryDatabase;
  readonly clock: Clock;
  readonly timers: Timers;
  /**
   * Receives the checkpoints (signed states of access logs). No run (log of one process) counts as silent while this
   * inbox cannot receive messages, because the run's checkpoints cannot arrive then.
   */
  readonly inbox: Pick<GatewayInbox, 'workingSince'>;
  readonly logger?: Logger | undefined;
}

const scanMilliseconds = 5_000;
const silentIntervals = 3;
/**
 * Minimum time after which a run (log of one process) without checkpoints counts as silent. Gateways need this time to
 * reconnect to Redis and to repeat submissions that got no reply.
 */
const leastSilentMilliseconds = 15_000;

/**
 * Reports silent runs. A run (log of one process) is silent if no checkpoint (signed state) arrived for three of its
 * intervals (at least 15 seconds), and no other run continues the log. A run with an end checkpoint is silent only if
 * that checkpoint announces a next run, which is then missing. Without an announcement, the run has simply ended.
 */
export class SilentRuns {
  readonly #options: SilenceOptions;
  #cancel: () => void = () => undefined;
  #scanning: Promise<void> = Promise.resolve();
  #isStopped = false;

  constructor(options: SilenceOptions) {
    this.#options = options;
  }

  start(): void {
    this.#cancel = this.#options.timers.after(scanMilliseconds, () => {
      this.#scanning = this.#scan()
        .catch(() => undefined) // the database is unavailable: the next scan retries
        .then(() => {
          if (!this.#isStopped) this.start();
        });
    });
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#cancel();
    await this.#scanning;
  }

  async #scan(): Promise<void> {
    const { database, clock, inbox, logger } = this.#options;
    const now = clock.now();
    const { workingSince } = inbox;
    if (workingSince === null || now - workingSince < leastSilentMilliseconds) return;
    const silent = await database
      .selectFrom('runs')
      .select(['origin', 'size', 'received_at', 'next_run'])
      .where('was_missed', '=', 0)
      .where((it) => it.or([it('occasion', '<>', 'end'), it('next_run', 'is not', null)]))
      .where('received_at', '<', now - leastSilentMilliseconds)
      .where((it) => it(it('received_at', '+', it('every_seconds', '*', silentIntervals * 1000)), '<', now))
      .where((it) => it(it('every_seconds', '*', silentIntervals * 1000), '<', now - workingSince))
      .where((it) =>
        it.not(
          it.exists(
            it.selectFrom('runs as next').select('next.origin').whereRef('next.previous_run', '=', 'runs.origin'),
          ),
        ),
      )
      .limit(1_000)
      .execute();
    for (const { origin, size, received_at, next_run } of silent) {
      const since = new Date(received_at).toISOString();
      const message =
        next_run === null
          ? `the last checkpoint of the run (log of one process) arrived at ${since} and covers ${size} lines, but no checkpoint marks the end of the run`
          : `the run (log of one process) ended at ${since} and named the run ${next_run} as its successor, but no checkpoint of that run was received`;
      await database.transaction().execute(async (transaction) => {
        // Updates no row if another registry has reported the run, or a checkpoint of the run has arrived since the
        // query. In both cases, this process does not report it.
        const { numUpdatedRows } = await transaction
          .updateTable('runs')
          .set({ was_missed: 1 })
          .where('origin', '=', origin)
          .where('was_missed', '=', 0)
          .where('received_at', '=', received_at)
          .executeTakeFirstOrThrow();
        if (numUpdatedRows === 0n) return;
        await reportFinding(transaction, { id: ulid(now), found_at: now, kind: 'silent', origin, message });
        logger?.error(
          { kind: 'silent', run: origin, problem: message },
          'new problem in the access log of a gateway: see "merchant-gateway checkpoints findings"',
        );
      });
    }
  }
}
