import type { RecordsStore } from '../../../gateway/store-ports.js';
import { ClusterRecordsStore } from './cluster-records-store.js';
import type { RedisAddress } from '../connection.js';
import type { OutageEvents } from '../outage.js';
import { RedisRecordsStore } from './redis-records-store.js';
import { noSeals } from '../seal.js';
import type { Seals } from '../seal.js';

/** A record store with connections that must be closed. */
export interface OpenedRecordsStore extends RecordsStore {
  close(): Promise<void>;
}

/**
 * Opens the registry's connection to the record store in Redis, to which the registry writes the records for gateways.
 * @param seals signs the records (HMAC)
 */
export function openRecordsStore(
  address: RedisAddress,
  prefix: string,
  events: OutageEvents,
  seals: Seals = noSeals,
): OpenedRecordsStore {
  return new (address.cluster === null ? RedisRecordsStore : ClusterRecordsStore)(address, prefix, events, seals);
}
