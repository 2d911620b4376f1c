import { ulid } from 'ulid';
import type { GatewayInbox } from '../../gateway/channel-ports.js';
import type { Clock, Logger, Timers } from '../../gateway/store-ports.js';
import type { Selectable } from '../../database/kysely.js';
import { type Page, type Paging, rangeOf } from '../../rest/paging.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';

/**
 * Kinds of findings: problems that checkpoints of a gateway's access log can show. A checkpoint is a signed state of a
 * run. A run is the part of the log that one process wrote to one file, or to standard output. A pinned key is a key
 * that the registry stores as valid for an instance.
 * - `cut`: the end of the log was removed, or an older copy replaced the log;
 * - `fork`: two versions of the same lines are signed, two logs continue the same run, or a run continues after its end
 *   checkpoint;
 * - `previous`: the log continues an unknown run;
 * - `unknown`: a checkpoint arrived, but the start checkpoint of its run never arrived;
 * - `replay`: a submitted checkpoint is older than the newest one, and the registry has no record of accepting it;
 * - `key`: only other keys are pinned for the instance, its pinned key is not valid at this time, or the signature with
 *   the run's own key is missing;
 * - `silent`: the process stopped without an end checkpoint, and no other process continued the log; or the next run,
 *   which an end checkpoint announced, never began;
 * - `clock`: the times of the checkpoints contradict each other or the registry's clock.
 */
export const findingKinds = ['cut', 'fork', 'previous', 'unknown', 'replay', 'key', 'silent', 'clock'] as const;

/** The kind of a finding. */
export type WitnessFindingKind = (typeof findingKinds)[number];

/** A finding, as the database stores it. */
interface KeptFinding {
  readonly id: string;
  readonly found_at: number;
  readonly kind: WitnessFindingKind;
  readonly origin: string;
  readonly message: string;
}

/** Stores a finding. Stores equal findings only once, because gateways submit rejected checkpoints again. */
export async function reportFinding(database: RegistryDatabase, finding: KeptFinding): Promise<void> {
  const { kind, origin, message } = finding;
  const same = database.selectFrom('checkpoint_findings').select('id').where('origin', '=', origin);
  const known = await same.where('kind', '=', kind).where('message', '=', message).executeTakeFirst();
  if (known !== undefined) return;
  await database.insertInto('checkpoint_findings').values(finding).execute();
}

/** Returns one page of the findings, newest first. */
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

/** Counts the findings of each kind, with 0 for kinds without findings. */
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
   * Receives the checkpoints. While this inbox cannot receive messages, no run counts as silent, because no checkpoint
   * can arrive.
   */
  readonly inbox: Pick<GatewayInbox, 'workingSince'>;
  readonly logger?: Logger | undefined;
  /** Returns the time, in milliseconds, of the monotonic clock that `inbox.workingSince` uses. */
  readonly monotonic?: () => number;
}

const scanMilliseconds = 5_000;
const silentIntervals = 3;
/**
 * Minimum time without a checkpoint after which a run counts as silent. Gateways need this time to reconnect to Redis
 * and to repeat submissions that got no reply.
 */
const leastSilentMilliseconds = 15_000;
/** The maximum number of runs that a scan reads. Silent runs come first, because their checkpoints were due first. */
const mostRuns = 10_000;

/** When a run's newest checkpoint was received, and the monotonic time at which a scan first found this value. */
interface Sighting {
  readonly received_at: number;
  readonly since: number;
}

/**
 * Reports silent runs. A run is silent if none of its checkpoints arrived for three checkpoint intervals (at least 15
 * seconds), and no other run continues the log. A run with an end checkpoint is silent only if that checkpoint
 * announces a next run that never began. Without an announcement, the run has simply ended.
 *
 * Measures the time on the monotonic clock of this process, from the first scan that found the newest checkpoint. The
 * time of receipt is not reliable: a clock can be set, and the time can be from another registry with another clock.
 */
export class SilentRuns {
  readonly #options: SilenceOptions;
  readonly #monotonic: () => number;
  #sightings: ReadonlyMap<string, Sighting> = new Map();
  #scannedAt = -Infinity;
  #cancel: () => void = () => undefined;
  #scanning: Promise<void> = Promise.resolve();
  #isStopped = false;

  constructor(options: SilenceOptions) {
    this.#options = options;
    this.#monotonic = options.monotonic ?? (() => performance.now());
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
    const { database, clock, logger } = this.#options;
    const silent = await this.#findSilent();
    const now = clock.now();
    for (const { origin, size, received_at, next_run } of silent) {
      const arrivedAt = new Date(received_at).toISOString();
      const message =
        next_run === null
          ? `no checkpoint of the log run has arrived since ${arrivedAt}, and no checkpoint marks the end of the run: check that its gateway runs. The last checkpoint covers ${size === 1 ? '1 line' : `${size} lines`}`
          : `the log run ended at ${arrivedAt} and named the run ${next_run} as its successor, but the registry has received no checkpoint of the successor`;
      await database.transaction().execute(async (transaction) => {
        // Updates no row if another registry process has reported the run, or a checkpoint of the run has arrived since
        // the query. In both cases, this process does not report the run.
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

  async #findSilent(): Promise<WatchedRun[]> {
    const { database, inbox } = this.#options;
    const before = this.#monotonic();
    const wasPaused = before - this.#scannedAt > 2 * scanMilliseconds;
    this.#scannedAt = before;
    const { workingSince } = inbox;
    // Measure the silence anew: checkpoints that were sent during an outage or a pause of this process may be unread.
    if (workingSince === null || wasPaused) this.#sightings = new Map();
    if (workingSince === null) return [];
    const runs = await watchedRuns(database);
    const after = this.#monotonic();
    const sightings = new Map<string, Sighting>();
    const silent = runs.filter(({ origin, received_at, every_seconds }) => {
      const seen = this.#sightings.get(origin);
      const sighting = seen?.received_at === received_at ? seen : { received_at, since: after };
      sightings.set(origin, sighting);
      const limit = Math.max(every_seconds * silentIntervals * 1000, leastSilentMilliseconds);
      return before - Math.max(sighting.since, workingSince) >= limit;
    });
    this.#sightings = sightings;
    return silent;
  }
}

/** An unreported run that no other run continues. Its end checkpoint is missing, or announces a next run. */
type WatchedRun = Pick<
  Selectable<RegistryTables['runs']>,
  'origin' | 'size' | 'received_at' | 'every_seconds' | 'next_run'
>;

function watchedRuns(database: RegistryDatabase): Promise<WatchedRun[]> {
  return database
    .selectFrom('runs')
    .select(['origin', 'size', 'received_at', 'every_seconds', 'next_run'])
    .where('was_missed', '=', 0)
    .where((it) => it.or([it('occasion', '<>', 'end'), it('next_run', 'is not', null)]))
    .where((it) =>
      it.not(
        it.exists(
          it.selectFrom('runs as next').select('next.origin').whereRef('next.previous_run', '=', 'runs.origin'),
        ),
      ),
    )
    .orderBy((it) => it('received_at', '+', it('every_seconds', '*', silentIntervals * 1000)))
    .limit(mostRuns)
    .execute();
}
