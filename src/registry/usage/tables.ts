// The texts '' stand for what SQL cannot have in a primary key: no merchant, no key, or all further entries of a list.

/** A gateway process that sends batches of usage. */
interface UsageProcessRow {
  process: string;
  instance: string;
  environment: string;
  /** Sequence number of the newest batch that was added. */
  sequence: number;
  /** From and until when the added batches counted, by the clock of the gateway. */
  first_at: number;
  last_at: number;
  /** When the newest batch was added, by the clock of the registry. */
  received_at: number;
  /** 1 after the closing batch. */
  is_ended: number;
  /** Details that the process dropped: refusals, and requests without a row for their address, agent or host. */
  dropped_refusals: number;
  dropped_rows: number;
}

/** Batches of a process that are lost: those with the sequence numbers from first to last. */
interface UsageGapRow {
  process: string;
  first: number;
  last: number;
  found_at: number;
}

/** Requests of one key with one result within one hour. */
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
  /** An address, or a network such as `192.0.2.0/24`. Empty: all further ones. */
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

/** Requests of one merchant with one deciding host on one day. */
interface UsageHostRow {
  day: number;
  merchant_id: string;
  /** The header that decided. Empty, like the host: all further ones. */
  header: string;
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

/** How many refusals of a merchant were ever added. The next one gets this number plus one. */
interface UsageMerchantRow {
  merchant_id: string;
  refusals: number;
}

/** A refused request of a merchant. */
interface UsageRefusalRow {
  merchant_id: string;
  /** From 1 for each merchant, in the order in which refusals become visible. */
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

/** The tables of what gateways have counted. */
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
