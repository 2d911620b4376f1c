import Type, { Compile, type Static } from '../typebox/typebox.js';

/** The length of an hour. Requests are counted by result for each hour of UTC. */
export const hourMilliseconds = 3_600_000;
/** The length of a day. Requests are counted by address, User-Agent and host for each day of UTC. */
export const dayMilliseconds = 24 * hourMilliseconds;

/**
 * Maximum length of a list in a batch. A batch is a message with the usage counts of a gateway. If a gateway has more
 * rows, it sends several batches. So a batch with a longer list is rejected as forged.
 */
const mostRows = 10_000;

const text = (maxLength: number) => Type.String({ maxLength });
const nullable = <Schema extends Parameters<typeof Type.Union>[0][number]>(schema: Schema) =>
  Type.Union([schema, Type.Null()]);
const count = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
const moment = count;
const list = <Schema extends Parameters<typeof Type.Array>[0]>(schema: Schema) =>
  Type.Array(schema, { maxItems: mostRows });

/**
 * Requests with one result within one hour. `hour` is the start of this hour, in milliseconds since 1970. The time in
 * the access log line determines the hour of a request.
 */
const codeCount = Type.Object({
  hour: moment,
  /** `accepted`, or the code of the denial or failure, as in the access log. */
  code: text(64),
  count,
  /** Total duration of these requests. Requests that share one line of the access log have no duration and add 0. */
  totalMilliseconds: Type.Number({ minimum: 0 }),
  /** Duration of the slowest request. */
  slowestMilliseconds: Type.Number({ minimum: 0 }),
  requestBytes: count,
  responseBytes: count,
});

/**
 * Requests from one client address on one day. A gateway lists a limited number of addresses: the row with `address`
 * null adds up the requests from all others.
 */
const addressCount = Type.Object({
  day: moment,
  address: nullable(text(64)),
  /** ISO 3166 country code; null if unknown, as without a GeoIP database. */
  country: nullable(text(8)),
  /** Number of the autonomous system; null if unknown, as without a GeoIP database. */
  asNumber: nullable(count),
  accepted: count,
  /** Denied and failed requests. */
  refused: count,
  /** Time of the first request that this row counts. */
  firstAt: moment,
  /** Time of the last request that this row counts. */
  lastAt: moment,
});

/**
 * Accepted requests with one User-Agent on one day; `agent` is null in the row that adds up all User-Agents beyond the
 * gateway's limit.
 */
const agentCount = Type.Object({ day: moment, agent: nullable(text(256)), count });

/** Requests with one host on one day; `host` is null in the row that adds up all hosts beyond the gateway's limit. */
const hostCount = Type.Object({
  day: moment,
  /**
   * The header that contained the host: `origin`, or `referer` if the request had no Origin; empty if `host` is null.
   * Requests with neither header are not counted in these rows.
   */
  header: text(16),
  host: nullable(text(256)),
  accepted: count,
  refused: count,
});

/** A denied or failed request of a known merchant. */
const refusal = Type.Object({
  at: moment,
  code: text(64),
  status: Type.Integer({ minimum: 100, maximum: 599 }),
  method: text(64),
  /** The path without the query, cut off where an API key begins, as in the access log. */
  path: text(2_048),
  address: nullable(text(64)),
  keyId: nullable(text(128)),
  /** The name of the header whose origin was not allowed, and the host in it; null for other refusals. */
  header: nullable(Type.Object({ name: text(64), value: text(512) })),
  requestId: text(128),
});

/** The requests with one API key. */
const keyUsage = Type.Object({
  /**
   * The id of the key. It is null if the gateway refused the requests before it read the key's record; `lookupId` then
   * identifies the key. If `keyId` and `lookupId` are both null, these are the requests of all keys that had no room in
   * the gateway's memory.
   */
  keyId: nullable(text(128)),
  merchantId: nullable(text(128)),
  /** The hash by which the registry finds the key; null if `keyId` is known. */
  lookupId: nullable(text(128)),
  codes: list(codeCount),
  /** The last accepted request; null if no request was accepted. */
  lastUse: nullable(Type.Object({ at: moment, address: text(64), country: nullable(text(8)) })),
  addresses: list(addressCount),
  agents: list(agentCount),
});

/** The hosts and refused requests of one merchant, in addition to the rows of its keys. */
const merchantUsage = Type.Object({ merchantId: text(128), hosts: list(hostCount), refusals: list(refusal) });

const usageBatch = Type.Object({
  version: Type.Literal(1),
  /**
   * Id of the gateway or worker process that counted the requests. A process has a new id after each start and after
   * each rejected batch.
   */
  process: Type.String({ pattern: '^[0-9A-Za-z-]{1,64}$' }),
  /** Name of the process for people: host and process number. */
  instance: text(256),
  environment: Type.Union([Type.Literal('live'), Type.Literal('test')]),
  /** Number of the batch: 1 for the first batch of a process, and one more for each further batch. */
  sequence: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  /**
   * The highest sequence that the registry has confirmed to this process as stored in SQL. Several batches can be in
   * flight at the same time, but the registry stores them in the order of their sequences. If the highest sequence in
   * the registry's database is below `acknowledged`, the database was restored from a backup. The batches in between
   * are then lost.
   */
  acknowledged: count,
  /** Start of the period in which the requests were recorded (inclusive). */
  from: moment,
  /** End of the period in which the requests were recorded (exclusive). */
  to: moment,
  /** Whether this is the last batch that the process sends before it ends. */
  isLast: Type.Boolean(),
  /**
   * How many details were dropped since the previous batch, because the gateway keeps only a limited number.
   * `refusals` counts refused requests without details. `rows` counts requests without a row for their address,
   * User-Agent or host. The counts by code are complete.
   */
  dropped: Type.Object({ refusals: count, rows: Type.Optional(count) }),
  keys: list(keyUsage),
  merchants: list(merchantUsage),
  /** Requests without a key, or with a key that has no record. They belong to no merchant. */
  unknown: Type.Object({ codes: list(codeCount), addresses: list(addressCount) }),
});

/** The counts of one gateway process since its previous batch. Each request is in exactly one batch. */
export type UsageBatch = Static<typeof usageBatch>;
export type CodeCount = Static<typeof codeCount>;
export type AddressCount = Static<typeof addressCount>;
export type AgentCount = Static<typeof agentCount>;
export type HostCount = Static<typeof hostCount>;
export type RefusalDetail = Static<typeof refusal>;
export type MerchantUsage = Static<typeof merchantUsage>;
export type KeyUsage = Static<typeof keyUsage>;

/**
 * The schema of a batch, compiled for speed. Without compilation, checking 1,000 keys takes as long as storing them.
 */
const batches = Compile(usageBatch);

/** Returns true if a value is a batch. Unknown members are allowed, because a newer gateway could send them. */
export function isUsageBatch(value: unknown): value is UsageBatch {
  return batches.Check(value);
}
