import Type, { Compile, type Static } from '../typebox/typebox.js';

/** Milliseconds of the hours and days in which requests are counted. They begin with those of UTC. */
export const hourMilliseconds = 3_600_000;
export const dayMilliseconds = 24 * hourMilliseconds;

/**
 * Most rows of one kind in a batch. A process that has more to send sends several batches, so the sender of a longer
 * list is no gateway.
 */
const mostRows = 10_000;

const text = (maxLength: number) => Type.String({ maxLength });
const nullable = <Schema extends Parameters<typeof Type.Union>[0][number]>(schema: Schema) =>
  Type.Union([schema, Type.Null()]);
const count = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
const moment = count;
const list = <Schema extends Parameters<typeof Type.Array>[0]>(schema: Schema) =>
  Type.Array(schema, { maxItems: mostRows });

/** Requests with one result within one hour. The hour is that of the access log line, in milliseconds since 1970. */
const codeCount = Type.Object({
  hour: moment,
  /** `accepted`, or the code of the denial or failure, as in the access log. */
  code: text(64),
  count,
  /** Milliseconds of all requests together, and of the slowest one. Shared log lines have no duration: 0. */
  totalMilliseconds: Type.Number({ minimum: 0 }),
  slowestMilliseconds: Type.Number({ minimum: 0 }),
  requestBytes: count,
  responseBytes: count,
});

/** Requests from one client address on one day. `address` is null for the requests from all further addresses. */
const addressCount = Type.Object({
  day: moment,
  address: nullable(text(64)),
  /** ISO 3166 code and AS number of the address; null without a GeoIP database. */
  country: nullable(text(8)),
  asNumber: nullable(count),
  accepted: count,
  /** Denied and failed requests. */
  refused: count,
  /** Times of the first and the last request in this batch. */
  firstAt: moment,
  lastAt: moment,
});

/** Accepted requests with one User-Agent on one day; `agent` is null for those of all further ones. */
const agentCount = Type.Object({ day: moment, agent: nullable(text(256)), count });

/** Requests with one deciding host on one day; `host` is null for those of all further hosts. */
const hostCount = Type.Object({
  day: moment,
  /** The header that decided: the first of Origin, Referer and Host that the request had. */
  header: text(16),
  host: nullable(text(256)),
  accepted: count,
  refused: count,
});

/** A refused request of a known merchant. */
const refusal = Type.Object({
  at: moment,
  code: text(64),
  status: Type.Integer({ minimum: 100, maximum: 599 }),
  method: text(64),
  /** Without the query, cut at an API key, as in the access log. */
  path: text(2_048),
  address: nullable(text(64)),
  keyId: nullable(text(128)),
  /** The header on which the decision rests, such as `origin`, with its value; null for other rules. */
  header: nullable(Type.Object({ name: text(64), value: text(512) })),
  requestId: text(128),
});

/** What happened to one key. */
const keyUsage = Type.Object({
  /**
   * Null if the gateway did not look the key up: the request was refused before. `lookupId` then names the key. If both
   * are null, these are the requests of all keys that had no room in the gateway's memory.
   */
  keyId: nullable(text(128)),
  merchantId: nullable(text(128)),
  /** The look-up id of the key, from which the registry finds it; null where `keyId` is known. */
  lookupId: nullable(text(128)),
  codes: list(codeCount),
  /** The last accepted request; null without one. */
  lastUse: nullable(Type.Object({ at: moment, address: text(64), country: nullable(text(8)) })),
  addresses: list(addressCount),
  agents: list(agentCount),
});

/** What happened to one merchant, beside the rows of its keys. */
const merchantUsage = Type.Object({ merchantId: text(128), hosts: list(hostCount), refusals: list(refusal) });

const usageBatch = Type.Object({
  version: Type.Literal(1),
  /** Id of the process that counted. Each start of a gateway and of a worker has its own. */
  process: Type.String({ pattern: '^[0-9A-Za-z-]{1,64}$' }),
  /** Name of the process for people: host and process number. */
  instance: text(256),
  environment: Type.Union([Type.Literal('live'), Type.Literal('test')]),
  /** 1 for the first batch of a process, then one more each time. */
  sequence: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  /**
   * The highest sequence of which the process knew that the registry has it in SQL. Several batches may be under way,
   * so the registry takes them in order: the batch after the last one that it has. If it has less than `acknowledged`,
   * its database was restored from a backup, and the batches between are lost.
   */
  acknowledged: count,
  /** The batch has all requests that were recorded from this time, inclusive, to that time, exclusive. */
  from: moment,
  to: moment,
  /** Whether the process ended with this batch. */
  isLast: Type.Boolean(),
  /**
   * How many details were dropped since the batch before, because the memory for them is bounded: refusals, and
   * requests without a row for their address, User-Agent or host. The counts by code are complete.
   */
  dropped: Type.Object({ refusals: count, rows: Type.Optional(count) }),
  keys: list(keyUsage),
  merchants: list(merchantUsage),
  /** Requests without a key, or with one that no gateway found. They belong to no merchant. */
  unknown: Type.Object({ codes: list(codeCount), addresses: list(addressCount) }),
});

/** What one gateway process counted since its batch before. Requests are in exactly one batch. */
export type UsageBatch = Static<typeof usageBatch>;
export type CodeCount = Static<typeof codeCount>;
export type AddressCount = Static<typeof addressCount>;
export type AgentCount = Static<typeof agentCount>;
export type HostCount = Static<typeof hostCount>;
export type RefusalDetail = Static<typeof refusal>;
export type MerchantUsage = Static<typeof merchantUsage>;
export type KeyUsage = Static<typeof keyUsage>;

/** Compiled: checking a batch of 1,000 keys by its schema takes as long as storing it. */
const batches = Compile(usageBatch);

/** Whether a value is a batch. Members that this release does not know are allowed: a newer gateway may send them. */
export function isUsageBatch(value: unknown): value is UsageBatch {
  return batches.Check(value);
}
