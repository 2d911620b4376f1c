import type { Selectable } from '../../database/kysely.js';
import type { Environment } from '../../policy/key-format.js';
import type { RecordsStore, SeenGateway, SeenGateways } from '../../gateway/store-ports.js';
import { type History, readHistory } from '../projection/history.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';

/** A gateway that is in the roster, or acknowledges. */
export interface KnownGateway {
  readonly instanceId: string;
  readonly host: string;
  readonly environment: Environment;
  /** Null for one of an earlier release, which does not say. */
  readonly version: string | null;
  /** ISO 8601; null where no acknowledgement says it. */
  readonly startedAt: string | null;
  /** The newest change that it has confirmed; null where it has confirmed none that counts now. */
  readonly revision: number | null;
  /** Whether it is in the roster, so that it may use what it holds. */
  readonly isEnrolled: boolean;
  /** Whether it names the generation that it acknowledges in. An earlier release does not, so that nothing it says counts. */
  readonly namesGeneration: boolean;
  /** From when on it can hold nothing, counted from the last sign of life. */
  readonly lifetimeMilliseconds: number;
  readonly silentMilliseconds: number;
  readonly clockSkewMilliseconds: number | null;
}

/** All of them, and whether there may be others. */
export interface KnownGateways {
  readonly gateways: readonly KnownGateway[];
  /** False while a gateway may use records that the roster does not name. */
  readonly isComplete: boolean;
  /** When that ends, in milliseconds since 1970; null where it is, or where that is not known yet. */
  readonly completeAt: number | null;
}

/** What the gateways are read from. */
export interface GatewaySources {
  readonly database: RegistryDatabase;
  readonly store: Pick<RecordsStore, 'gateways' | 'nextAcknowledgement'>;
  readonly longestLifetimeMilliseconds: number;
}

/**
 * Reads who may use what it holds, and what each has confirmed. The history is read first: a gateway that is enrolled after
 * that reads what was published before.
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
 * What counts of what was seen of gateways. Of a gateway that was seen to seal what it acknowledges nothing else counts: whoever can
 * write to the store could put a revocation in force that the gateway has not heard of. Nor does a meta record that is not sealed,
 * where all records are.
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
