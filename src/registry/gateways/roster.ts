import { ulid } from 'ulid';
import type { Selectable } from '../../database/kysely.js';
import { noRecords } from '../projection/lease.js';
import type { Projection } from '../projection/projection.js';
import { readHistory } from '../projection/history.js';
import type { History } from '../projection/history.js';
import type {
  Clock,
  GatewayGrant,
  Logger,
  RecordsStore,
  SeenGateway,
  SeenGateways,
  Timers,
} from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { holdBackLate } from '../restores/restores.js';
import type { RegistryTables } from '../tables.js';
import { believedOf } from './known-gateways.js';

type Row = Selectable<RegistryTables['gateways']>;

/** Dependencies of Roster. */
export interface RosterOptions {
  readonly database: RegistryDatabase;
  readonly store: Pick<
    RecordsStore,
    'gateways' | 'grant' | 'removeGateways' | 'names' | 'read' | 'reports' | 'removeReports'
  >;
  readonly projection: Pick<Projection, 'lease' | 'settledIn' | 'isComplete'>;
  readonly clock: Clock;
  readonly timers: Timers;
  /** The maximum time for which a gateway is allowed to use cached records, plus one second, in milliseconds. */
  readonly longestLifetimeMilliseconds: number;
  /** Called when a change has to be written to the store, or when the store has changed. */
  readonly onWork: () => void;
  readonly logger?: Logger | undefined;
}

const everyMilliseconds = 250;
/**
 * Maximum number of gateways that one update of the roster adds. The same maximum applies to the gateways that an
 * update removes. In practice, fewer gateways start at once.
 */
const mostAtOnce = 100;

/**
 * Maintains the roster, the list of gateways that are allowed to use cached records. A gateway gets this permission
 * with a grant. Before the first grant, the gateway's row is stored and published. So the registry knows every gateway
 * that could use cached records, even if Redis loses data.
 *
 * Deletes the row when the gateway has left, or has sent no heartbeat for so long that its cached records have expired.
 * Only the process that writes to the store maintains the roster.
 */
export class Roster {
  readonly #options: RosterOptions;
  #running: Promise<void> = Promise.resolve();
  #isStopped = false;
  #cancelTimer: () => void = () => undefined;
  /**
   * For each gateway, the heartbeat number in its last grant. After a reconnect to Redis, which begins a new epoch, all
   * grants are written again.
   */
  #granted: { readonly epoch: number; readonly beats: Map<string, number> } = { epoch: -1, beats: new Map() };

  constructor(options: RosterOptions) {
    this.#options = options;
  }

  /** Updates the roster every 250 ms, until `stop()`. */
  start(): void {
    if (this.#isStopped) return;
    this.#cancelTimer = this.#options.timers.after(everyMilliseconds, () => {
      this.#running = this.update()
        // Ignores the error: the projection uses this database and store too, and logs their failures.
        .catch(() => undefined)
        .finally(() => {
          this.start();
        });
    });
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#cancelTimer();
    await this.#running;
  }

  /** Adds new gateways, removes gateways that no longer use cached records, and renews the grants of all others. */
  async update(): Promise<void> {
    const { database, store, projection, onWork } = this.#options;
    const epoch = projection.settledIn;
    if (epoch === null) return;
    const rows = await database.selectFrom('gateways').selectAll().execute();
    const found = await store.gateways(rows.map((row) => row.instance_id));
    const history = await readHistory(database);
    const seen = believedOf(found, rows, history);
    if (seen.epoch !== epoch || seen.generation !== history.generation) {
      onWork();
      return;
    }
    // Renews the lease (the right to write to the store) after reading the gateways' acknowledgements. If this process
    // is then paused and loses the lease, its late grants name old heartbeats. A grant counts from the start of the
    // heartbeat that the grant names, so a late grant prolongs the permission little or not at all.
    if (!(await projection.lease.take())) return;
    // Reads the gateways' reports before writing grants, because a gateway deletes its report when it gets a grant. A
    // report lists inactive records (whose status denies requests).
    if (seen.hasReports) await this.#holdBackLate();
    const byId = new Map(seen.gateways.map((one) => [one.instanceId, one]));
    const over = rows.filter((row) => hasEnded(row, byId.get(row.instance_id), seen)).slice(0, mostAtOnce);
    const known = new Set(rows.map((row) => row.instance_id));
    const fresh = seen.gateways
      .filter((one) => !known.has(one.instanceId) && mayEnrol(one, history))
      .slice(0, mostAtOnce);
    const sealing = rows.filter(({ instance_id, seals }) => seals === 0 && byId.get(instance_id)?.isSealed === true);
    const isDue = over.length > 0 || fresh.length > 0 || sealing.length > 0;
    if (isDue && !(await this.#write({ over, fresh, sealing }))) return;
    // Deletes the acknowledgements of ended gateways, but not those of gateways of earlier releases. A gateway of an
    // earlier release uses records without a grant, so only its acknowledgement shows that it exists.
    const current = over.filter(({ version }) => version !== null);
    if (current.length > 0) await store.removeGateways(current.map((row) => row.instance_id));
    if (fresh.length > 0) onWork();
    await this.#grant(rows, byId, { epoch, history });
  }

  async #holdBackLate(): Promise<void> {
    const { onWork, logger } = this.#options;
    const heldBack = await holdBackLate(this.#options, onWork);
    if (heldBack === 0) return;
    logger?.warn(
      { heldBack },
      'a gateway has revocations that the database lacks, so the registry keeps the affected keys and merchants inactive: see "merchant-gateway restores held"',
    );
  }

  /**
   * Inserts the rows of added gateways and deletes the rows of removed gateways. Also stores which gateways now seal
   * (authenticate) their messages. Does all this in one transaction.
   * @returns false if another process now holds the lease (the right to write to the store)
   */
  async #write({
    over,
    fresh,
    sealing,
  }: {
    readonly over: readonly Row[];
    readonly fresh: readonly SeenGateway[];
    readonly sealing: readonly Row[];
  }): Promise<boolean> {
    const { projection, clock, logger, longestLifetimeMilliseconds } = this.#options;
    const isKept = await projection.lease.finish(noRecords, async (transaction) => {
      for (const { instance_id } of over) {
        await transaction.deleteFrom('gateways').where('instance_id', '=', instance_id).execute();
      }
      for (const { instance_id } of sealing) {
        await transaction.updateTable('gateways').set({ seals: 1 }).where('instance_id', '=', instance_id).execute();
      }
      if (fresh.length === 0) return;
      // The added gateways get a new revision (number of a change), which is published in the store. If an older backup
      // of the database is restored later, the database lacks this revision but the store has it. This shows the
      // registry that a backup was restored.
      const { value: revision } = await transaction
        .updateTable('revision')
        .set((it) => ({ value: it('value', '+', 1) }))
        .returning('value')
        .executeTakeFirstOrThrow();
      const change = ulid(clock.now());
      const rows = fresh.map((one) => rowOf(one, { revision, now: clock.now(), longestLifetimeMilliseconds }));
      await transaction.insertInto('gateways').values(rows).execute();
      const names = rows.map(({ instance_id }) => ({ revision, change, name: `enrolment:${instance_id}` }));
      await transaction.insertInto('outbox').values(names).execute();
    });
    if (!isKept) return false;
    for (const { instanceId, acknowledgement } of fresh) {
      logger?.info(
        { instanceId, host: acknowledgement?.host },
        'gateway added to the list of gateways: from now on, changes count as in force only with its confirmation',
      );
    }
    for (const { instance_id, host } of over)
      logger?.info(
        { instanceId: instance_id, host },
        'gateway removed from the list of gateways: from now on, changes count as in force without its confirmation',
      );
    return true;
  }

  async #grant(
    rows: readonly Row[],
    byId: ReadonlyMap<string, SeenGateway>,
    { epoch, history }: { readonly epoch: number; readonly history: History },
  ): Promise<void> {
    if (this.#granted.epoch !== epoch) this.#granted = { epoch, beats: new Map() };
    const { beats } = this.#granted;
    const compared = this.#options.projection.isComplete;
    const { generation, published } = history;
    const grants = rows.flatMap((row): GatewayGrant[] => {
      const instanceId = row.instance_id;
      const acknowledgement = byId.get(instanceId)?.acknowledgement ?? null;
      const { beat } = acknowledgement ?? {};
      if (beat === undefined || acknowledgement?.generation !== generation || acknowledgement.leaving === true)
        return [];
      if (published === null || published.revision < row.revision || beats.get(instanceId) === beat) return [];
      return [{ instanceId, generation, beat, lifetimeMilliseconds: row.lifetime_milliseconds, compared }];
    });
    if (grants.length === 0) return;
    await this.#options.store.grant(grants);
    for (const { instanceId, beat } of grants) beats.set(instanceId, beat);
    for (const id of beats.keys()) if (!byId.has(id)) beats.delete(id);
  }
}

/**
 * Returns true if a gateway no longer uses cached records: it has announced that it stops, or has sent no heartbeat for
 * as long as it is allowed to use cached records. Redis's invalidation messages report the heartbeats. So silence
 * counts only if the registry has handled all of these messages (`isFresh`).
 */
function hasEnded(row: Row, seen: SeenGateway | undefined, { isFresh }: SeenGateways): boolean {
  if (seen === undefined) return false;
  if (seen.acknowledgement?.leaving === true) return true;
  return isFresh && seen.silentMilliseconds >= row.lifetime_milliseconds;
}

/**
 * Returns true if a gateway has to be added to the roster: it is not leaving, and its acknowledgement names the current
 * generation, which began with the last complete rewrite of the store. Also true if the acknowledgement names no
 * generation: a gateway of an earlier release uses records even without a grant.
 */
function mayEnrol({ acknowledgement }: SeenGateway, { generation }: History): boolean {
  if (acknowledgement === null || acknowledgement.leaving === true) return false;
  return acknowledgement.generation === undefined || acknowledgement.generation === generation;
}

function rowOf(
  { instanceId, acknowledgement, isSealed }: SeenGateway,
  {
    revision,
    now,
    longestLifetimeMilliseconds,
  }: { revision: number; now: number; longestLifetimeMilliseconds: number },
) {
  const lifetime = acknowledgement?.lifetimeMilliseconds ?? longestLifetimeMilliseconds;
  return {
    instance_id: instanceId,
    host: acknowledgement?.host ?? '',
    environment: acknowledgement?.environment ?? ('live' as const),
    version: acknowledgement?.version ?? null,
    first_seen: now,
    lifetime_milliseconds: Math.min(lifetime, longestLifetimeMilliseconds),
    ...{ revision, seals: isSealed ? 1 : 0 },
  };
}
