import type { AddressCount, CodeCount, UsageBatch } from '../../usage/batch.js';
import type { UsageTables } from './tables.js';

/** The id and the merchant of a key that was found by its lookup id (the hash of the key). */
export type KeyOwner = Readonly<{ keyId: string; merchantId: string }>;

/** The rows to store for one batch of usage counts. Rows with equal primary keys are already merged. */
export interface BatchRows {
  readonly hours: readonly UsageTables['usage_hours'][];
  readonly addresses: readonly UsageTables['usage_addresses'][];
  readonly agents: readonly UsageTables['usage_agents'][];
  readonly hosts: readonly UsageTables['usage_hosts'][];
  readonly keys: readonly UsageTables['usage_keys'][];
  /** The refusals in the order of the batch. `seq` counts the refusals of each merchant in this batch, from 1. */
  readonly refusals: readonly UsageTables['usage_refusals'][];
}

/**
 * Adds the key id and the merchant to the usage of keys for which the gateway sent only a lookup id (the hash of a
 * key). For an unknown key, the key id and the merchant stay null.
 */
export function resolved(batch: UsageBatch, owners: ReadonlyMap<string, KeyOwner>): UsageBatch {
  return {
    ...batch,
    keys: batch.keys.map((key) => {
      const owner = key.keyId === null ? owners.get(key.lookupId ?? '') : undefined;
      return owner === undefined ? key : { ...key, ...owner };
    }),
  };
}

/** Collects rows. Uses the constructor's argument `add` to combine rows with the same primary key into one row. */
class RowSums<Row extends object> {
  readonly #rows = new Map<string, Row>();
  readonly #keyColumns: readonly (keyof Row)[];
  readonly #add: (sum: Row, row: Row) => Partial<Row>;

  constructor(keyColumns: readonly (keyof Row)[], add: (sum: Row, row: Row) => Partial<Row>) {
    [this.#keyColumns, this.#add] = [keyColumns, add];
  }

  add(row: Row): void {
    const key = JSON.stringify(this.#keyColumns.map((column) => row[column]));
    const sum = this.#rows.get(key);
    this.#rows.set(key, sum === undefined ? row : { ...sum, ...this.#add(sum, row) });
  }

  get rows(): Row[] {
    return [...this.#rows.values()];
  }
}

/** Creates an empty collection of hourly counts, which adds up rows with the same primary key. */
function hourSums(): RowSums<UsageTables['usage_hours']> {
  return new RowSums(['hour', 'merchant_id', 'key_id', 'environment', 'code'], (sum, row) => ({
    count: sum.count + row.count,
    total_milliseconds: sum.total_milliseconds + row.total_milliseconds,
    slowest_milliseconds: Math.max(sum.slowest_milliseconds, row.slowest_milliseconds),
    request_bytes: sum.request_bytes + row.request_bytes,
    response_bytes: sum.response_bytes + row.response_bytes,
  }));
}

/** Creates an empty collection of addresses, which adds up rows with the same primary key. */
export function addressSums(): RowSums<UsageTables['usage_addresses']> {
  return new RowSums(['day', 'merchant_id', 'key_id', 'address'], (sum, row) => ({
    ...{ country: row.country ?? sum.country, as_number: row.as_number ?? sum.as_number },
    ...{ accepted: sum.accepted + row.accepted, refused: sum.refused + row.refused },
    ...{ first_at: Math.min(sum.first_at, row.first_at), last_at: Math.max(sum.last_at, row.last_at) },
  }));
}

/** Creates an empty collection of User-Agents, which adds up rows with the same primary key. */
export function agentSums(): RowSums<UsageTables['usage_agents']> {
  return new RowSums(['day', 'merchant_id', 'key_id', 'agent'], (sum, row) => ({ count: sum.count + row.count }));
}

/** Creates an empty collection of hosts, which adds up rows with the same primary key. */
export function hostSums(): RowSums<UsageTables['usage_hosts']> {
  return new RowSums(['day', 'merchant_id', 'header', 'host'], (sum, row) => ({
    ...{ accepted: sum.accepted + row.accepted, refused: sum.refused + row.refused },
  }));
}

interface Owner {
  readonly merchant_id: string;
  readonly key_id: string;
}

const unknownOwner: Owner = { merchant_id: '', key_id: '' };

/**
 * Returns the rows of a batch in which `resolved` has added the ids of keys. Usage of unknown keys is counted under
 * empty ids.
 */
export function rowsOf({ environment, keys, merchants, unknown }: UsageBatch): BatchRows {
  const [hours, addresses, agents, hosts] = [hourSums(), addressSums(), agentSums(), hostSums()];
  const lastUses = new RowSums<UsageTables['usage_keys']>(['key_id'], (sum, row) =>
    row.last_at > sum.last_at ? row : sum,
  );
  const addCodes = (owner: Owner, codes: readonly CodeCount[]): void => {
    for (const { hour, code, count, totalMilliseconds, slowestMilliseconds, requestBytes, responseBytes } of codes)
      hours.add({
        ...{ hour, ...owner, environment, code, count },
        ...{ total_milliseconds: totalMilliseconds, slowest_milliseconds: slowestMilliseconds },
        ...{ request_bytes: requestBytes, response_bytes: responseBytes },
      });
  };
  const addAddresses = (owner: Owner, counts: readonly AddressCount[]): void => {
    for (const { day, address, country, asNumber, accepted, refused, firstAt, lastAt } of counts) {
      const place = address === null ? { country: null, as_number: null } : { country, as_number: asNumber };
      const times = { first_at: firstAt, last_at: lastAt };
      addresses.add({ day, ...owner, address: address ?? '', ...place, accepted, refused, ...times });
    }
  };
  addCodes(unknownOwner, unknown.codes);
  addAddresses(unknownOwner, unknown.addresses);
  for (const { keyId, merchantId, codes, lastUse, agents: counted, ...key } of keys) {
    const owner = keyId === null || merchantId === null ? unknownOwner : { merchant_id: merchantId, key_id: keyId };
    addCodes(owner, codes);
    addAddresses(owner, key.addresses);
    if (owner === unknownOwner) continue; // only accepted requests are counted below, and none has an unknown key
    for (const { day, agent, count } of counted) agents.add({ day, ...owner, agent: agent ?? '', count });
    if (lastUse === null) continue;
    lastUses.add({ ...owner, last_at: lastUse.at, last_address: lastUse.address, last_country: lastUse.country });
  }
  const refusals: UsageTables['usage_refusals'][] = [];
  const positions = new Map<string, number>();
  for (const { merchantId, hosts: counted, refusals: details } of merchants) {
    for (const { day, header, host, accepted, refused } of counted) {
      const name = host === null ? { header: '', host: '' } : { header, host };
      hosts.add({ day, merchant_id: merchantId, ...name, accepted, refused });
    }
    for (const { at, code, status, method, path, address, keyId, header, requestId } of details) {
      const seq = (positions.get(merchantId) ?? 0) + 1;
      positions.set(merchantId, seq);
      refusals.push({
        ...{ merchant_id: merchantId, seq, at, environment, code, status, method, path, address, key_id: keyId },
        ...{ header_name: header?.name ?? null, header_value: header?.value ?? null, request_id: requestId },
      });
    }
  }
  return {
    ...{ hours: hours.rows, addresses: addresses.rows, agents: agents.rows, hosts: hosts.rows },
    ...{ keys: lastUses.rows, refusals },
  };
}
