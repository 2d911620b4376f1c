// The columns of a primary key cannot be null, so these columns use an empty text where there is no merchant or no key.
// Some tables have a limit, for example on the addresses of a key per day. All addresses beyond the limit are added up
// in one row, whose address is an empty text.

/** A gateway process that sends usage counts in batches. */
interface UsageProcessRow {
  process: string;
  instance: string;
  environment: string;
  /** Sequence number of the newest batch that was added. */
  sequence: number;
  /** Beginning of the period that the added batches cover, by the clock of the gateway. */
  first_at: number;
  /** End of the period that the added batches cover, by the clock of the gateway. */
  last_at: number;
  /** When the newest batch was added, by the clock of the registry. */
  received_at: number;
  /** 1 if the process has sent its closing batch, otherwise 0. */
  is_ended: number;
  /** Number of refusals whose details the process dropped because of its limits. */
  dropped_refusals: number;
  /**
   * Number of requests that have no row for their address, agent or host, because the gateway process had reached its
   * maximum number of rows.
   */
  dropped_rows: number;
}

/** Lost batches of a gateway process: those with the sequence numbers from `first` to `last`. */
interface UsageGapRow {
  process: string;
  first: number;
  last: number;
  found_at: number;
}

/** Requests of one key with one result code within one hour. */
interface UsageHourRow {
  hour: number;
  merchant_id: string;
  key_id: string;
  environment: string;
  code: string;
  count: number;
  total_milliseconds: number;
  slowest_milliseconds: number;
  request_bytes: number;
  response_bytes: number;
}

/** Requests of one key from one address or network on one day. */
interface UsageAddressRow {
  day: number;
  merchant_id: string;
  key_id: string;
  /** An address, or a network such as `192.0.2.0/24`. Empty: the sum of all addresses beyond the limit. */
  address: string;
  country: string | null;
  as_number: number | null;
  accepted: number;
  refused: number;
  first_at: number;
  last_at: number;
}

/** Accepted requests of one key with one User-Agent on one day. */
interface UsageAgentRow {
  day: number;
  merchant_id: string;
  key_id: string;
  agent: string;
  count: number;
}

/**
 * Requests of one merchant with one host on one day. The host comes from Origin, or from Referer if the request has no
 * Origin. Requests with neither header are not counted in this table.
 */
interface UsageHostRow {
  day: number;
  merchant_id: string;
  /** The header with the host: `origin` or `referer`. Empty in the row for all hosts beyond the limit. */
  header: string;
  /** The host. In the row for all hosts beyond the limit, this column is empty, like `header`. */
  host: string;
  accepted: number;
  refused: number;
}

/** The last accepted request of a key. */
interface UsageKeyRow {
  key_id: string;
  merchant_id: string;
  last_at: number;
  last_address: string;
  last_country: string | null;
}

/**
 * Counts the refusals of a merchant in all received batches, including refusals that were deleted since. The count is
 * also the number (`seq`) of the newest refusal.
 */
interface UsageMerchantRow {
  merchant_id: string;
  refusals: number;
}

/** A refused request of a merchant. */
interface UsageRefusalRow {
  merchant_id: string;
  /**
   * Number of the refusal. The refusals of each merchant are numbered from 1, and become visible to readers in this
   * order.
   */
  seq: number;
  at: number;
  environment: string;
  code: string;
  status: number;
  method: string;
  path: string;
  address: string | null;
  key_id: string | null;
  header_name: string | null;
  header_value: string | null;
  request_id: string;
}

/** The tables of the usage that gateways have counted. */
export interface UsageTables {
  usage_processes: UsageProcessRow;
  usage_gaps: UsageGapRow;
  usage_hours: UsageHourRow;
  usage_addresses: UsageAddressRow;
  usage_agents: UsageAgentRow;
  usage_hosts: UsageHostRow;
  usage_keys: UsageKeyRow;
  usage_merchants: UsageMerchantRow;
  usage_refusals: UsageRefusalRow;
}
