import type { Selectable } from '../../database/kysely.js';
import type { History } from '../projection/history.js';
import type { SeenGateway, SeenGateways } from '../ports.js';
import type { RegistryTables } from '../tables.js';

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
