import type { Selectable } from '../../database/kysely.js';
import type { Environment } from '../../policy/key-format.js';
import type { RecordsStore, SeenGateway, SeenGateways } from '../../gateway/store-ports.js';
import { type History, readHistory } from '../projection/history.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';

/**
 * A gateway that is in the roster, or that has an acknowledgement in the store. The roster is the database's list of
 * gateways that are allowed to use cached records. An acknowledgement is a gateway's confirmation of changes.
 */
export interface KnownGateway {
  readonly instanceId: string;
  readonly host: string;
  readonly environment: Environment;
  /** The version of the gateway; null for a gateway of an earlier release, which does not report its version. */
  readonly version: string | null;
  /** Start time of the gateway as ISO 8601. Null if the store has no acknowledgement of this gateway. */
  readonly startedAt: string | null;
  /**
   * Revision (number) of the newest change that the gateway has acknowledged in the current generation, which began
   * with the last complete rewrite of the store. Null if the gateway has acknowledged no change in this generation.
   */
  readonly revision: number | null;
  /** Whether the gateway is in the roster. */
  readonly isEnrolled: boolean;
  /**
   * Whether the gateway's acknowledgements name a generation. A gateway of an earlier release names no generation, so
   * its acknowledgements are ignored.
   */
  readonly namesGeneration: boolean;
  /** How long the gateway is allowed to use cached records after its last heartbeat, in milliseconds. */
  readonly lifetimeMilliseconds: number;
  readonly silentMilliseconds: number;
  readonly clockSkewMilliseconds: number | null;
}

/** All known gateways, and whether there could be unknown ones. */
export interface KnownGateways {
  readonly gateways: readonly KnownGateway[];
  /** False while a gateway outside the roster could use cached records; otherwise true. */
  readonly isComplete: boolean;
  /** When `isComplete` becomes true, in milliseconds since 1970; null if it is already true or the time is unknown. */
  readonly completeAt: number | null;
}

/** Dependencies of `knownGateways`. */
export interface GatewaySources {
  readonly database: RegistryDatabase;
  readonly store: Pick<RecordsStore, 'gateways' | 'nextAcknowledgement'>;
  readonly longestLifetimeMilliseconds: number;
}

/**
 * Lists the gateways that could use cached records, and the newest change that each has acknowledged. Reads the
 * database before the store. A gateway that joins the roster after the first read can be missing here. This does no
 * harm, because the gateway reads every change that was published before it joined.
 */
export async function knownGateways(sources: GatewaySources): Promise<KnownGateways> {
  const { database, store, longestLifetimeMilliseconds } = sources;
  const history = await readHistory(database);
  const { generation, isOpen, opensAt } = history;
  const rows = await database.selectFrom('gateways').selectAll().execute();
  const seen = believedOf(await store.gateways(rows.map(({ instance_id }) => instance_id)), rows, history);
  const rowOf = new Map(rows.map((row) => [row.instance_id, row]));
  const gateways = seen.gateways.flatMap((one): KnownGateway[] => {
    const { instanceId, acknowledgement, silentMilliseconds, clockSkewMilliseconds } = one;
    const row = rowOf.get(instanceId);
    const { environment, host } = acknowledgement ?? row ?? {};
    if (environment === undefined || host === undefined || acknowledgement?.leaving === true) return [];
    const counts = seen.generation === generation && acknowledgement?.generation === generation;
    return [
      {
        ...{ instanceId, host, environment, silentMilliseconds, clockSkewMilliseconds },
        version: acknowledgement?.version ?? row?.version ?? null,
        startedAt: acknowledgement?.startedAt ?? null,
        revision: counts ? acknowledgement.revision : null,
        isEnrolled: row !== undefined,
        namesGeneration: namesGeneration(one, row?.version ?? null),
        lifetimeMilliseconds: row?.lifetime_milliseconds ?? longestLifetimeMilliseconds,
      },
    ];
  });
  return { gateways, isComplete: isOpen && seen.generation === generation, completeAt: opensAt };
}

function namesGeneration({ acknowledgement }: SeenGateway, version: string | null): boolean {
  return acknowledgement === null ? version !== null : acknowledgement.generation !== undefined;
}

type Row = Pick<Selectable<RegistryTables['gateways']>, 'instance_id' | 'seals'>;

/**
 * Removes unsealed (unauthenticated) data that should be sealed, because an attacker could have forged it:
 *
 * - The unsealed acknowledgement of a gateway that has sealed an acknowledgement before. With a forged acknowledgement,
 *   a revocation would count as in force too early.
 * - The generation in an unsealed meta record (the description of the store), if all records are sealed.
 */
export function believedOf(seen: SeenGateways, rows: readonly Row[], { sealedBy }: History): SeenGateways {
  const sealing = new Set(rows.filter(({ seals }) => seals === 1).map(({ instance_id }) => instance_id));
  const believed = (one: SeenGateway): SeenGateway =>
    one.isSealed || !sealing.has(one.instanceId) ? one : { ...one, acknowledgement: null, clockSkewMilliseconds: null };
  return {
    ...seen,
    generation: seen.isSealed || sealedBy.length === 0 ? seen.generation : null,
    gateways: seen.gateways.map(believed),
  };
}
