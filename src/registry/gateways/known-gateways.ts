import type { Environment } from '../../policy/key-format.js';
import { readHistory } from '../projection/history.js';
import type { RecordsStore, SeenGateway } from '../ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { believedOf } from './believed.js';

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
