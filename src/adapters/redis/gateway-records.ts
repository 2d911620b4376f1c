import Type, { Compile, type Static } from '../../typebox/typebox.js';
import { highestRevision } from './record-text.js';

const generation = Type.String({ minLength: 1, maxLength: 64 });
const beat = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
/**
 * The lifetime of a lease, which permits a gateway to use its cache. The maximum is the highest `maxStaleSeconds` (one
 * day) plus one second.
 */
const lifetimeMilliseconds = Type.Integer({ minimum: 1, maximum: 86_401_000 });

const acknowledgementForm = Type.Object({
  instanceId: Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' }),
  revision: Type.Integer({ minimum: 0, maximum: highestRevision }),
  environment: Type.Enum(['live', 'test']),
  host: Type.String({ maxLength: 255 }),
  /** Start time of the gateway, ISO 8601. */
  startedAt: Type.String({ maxLength: 40 }),
  /**
   * The generation to which the revision belongs. A generation is one unbroken history of changes. A gateway of an
   * earlier release omits this field and all fields that follow.
   */
  generation: Type.Optional(generation),
  /** The number of the gateway's heartbeat, counted from 1. */
  beat: Type.Optional(beat),
  /**
   * The longest time for which the registry waits for this gateway before it confirms a change. The gateway stops using
   * its cache one second before the end of this time, unless it gets a new proof that its Redis server is the master.
   */
  lifetimeMilliseconds: Type.Optional(lifetimeMilliseconds),
  version: Type.Optional(Type.String({ maxLength: 64 })),
  /** The gateway's clock when it wrote the acknowledgement, in milliseconds since 1970; for display only. */
  now: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  /** Whether the gateway has decided its last request and is about to stop. Omitted: false. */
  leaving: Type.Optional(Type.Boolean()),
});

/** The maximum number of records in one part of a report of inactive keys and merchants. A longer report is split. */
export const recordsOfReport = 500;

const recordName = '^(key:[0-9a-f]{64}|merchant:[A-Za-z0-9_-]{1,64})$';

const reportForm = Type.Object({
  instanceId: Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' }),
  generation,
  revision: Type.Integer({ minimum: 0, maximum: highestRevision }),
  entries: Type.Array(Type.Object({ name: Type.String({ pattern: recordName }), value: Type.Object({}) }), {
    maxItems: recordsOfReport,
  }),
});

const grantForm = Type.Object({
  ...{ generation, beat, lifetimeMilliseconds },
  /**
   * Whether the registry has compared the store with its database, and the store lacked no record. A registry of an
   * earlier release omits this field and does not reply to queries for a record.
   */
  compared: Type.Optional(Type.Boolean()),
});

const queryReplyForm = Type.Object({ generation, isPresent: Type.Boolean() });

/**
 * The text that a gateway stores in Redis to query the registry for a record. Its Redis key is
 * `mg:ask:<instanceId>:<number>:<record>`.
 */
export const queryText = 'asked';

/** Lifetime of a query, and of the reply that overwrites it, in Redis. */
export const queryLifetimeMilliseconds = 2_000;

/**
 * The acknowledgement that a gateway writes under `mg:gateway:<instanceId>` in each heartbeat. It states that the
 * gateway's cache has applied all changes up to `revision`, which is the number of a change.
 */
export type Acknowledgement = Static<typeof acknowledgementForm>;

/**
 * A grant is a lease, which permits a gateway to use its cache for a limited time. The registry writes the grant under
 * `mg:grant:<instanceId>`. The grant confirms that the registry has listed the gateway in this generation, and has read
 * the gateway's heartbeat number `beat`. The registry waits for listed gateways before it confirms a change.
 */
export type Grant = Static<typeof grantForm>;

/**
 * One part of a report that a gateway writes under `mg:inactive:<instanceId>:<part>` if the store may have lost
 * changes. The part lists cached keys that have an expiry or a status that denies requests, and cached merchants that
 * are not active or not live. The part also states the newest revision that the gateway knew.
 */
export type InactiveReport = Static<typeof reportForm>;

/**
 * The registry's reply to a gateway's query: whether the record exists. The reply overwrites the query. If the record
 * exists, the registry has just rewritten it to Redis.
 */
export type QueryReply = Static<typeof queryReplyForm>;

const checkQueryReply = Compile(queryReplyForm);
const checkReport = Compile(reportForm);
const checkAcknowledgement = Compile(acknowledgementForm);
const checkGrant = Compile(grantForm);

/** Parses a stored acknowledgement; null if it is missing or invalid. */
export function readAcknowledgement(text: string | null): Acknowledgement | null {
  const value = parsed(text);
  return checkAcknowledgement.Check(value) ? value : null;
}

/** Parses a stored grant; null if it is missing or invalid. */
export function readGrant(text: string | null): Grant | null {
  const value = parsed(text);
  return checkGrant.Check(value) ? value : null;
}

/** Serializes a reply to a query for a record as JSON, without its seal (HMAC). */
export function queryReplyText(isPresent: boolean, generation: string): string {
  return JSON.stringify({ generation, isPresent } satisfies QueryReply);
}

/** Parses a stored reply to a query; null for any other text, such as the query before its reply. */
export function readQueryReply(text: string): QueryReply | null {
  const value = parsed(text);
  return checkQueryReply.Check(value) ? value : null;
}

/** Parses a gateway's stored report of inactive keys and merchants; null if it is missing or invalid. */
export function readReport(text: string | null): InactiveReport | null {
  const value = parsed(text);
  return checkReport.Check(value) ? value : null;
}

function parsed(text: string | null): unknown {
  try {
    return text === null ? null : JSON.parse(text);
  } catch {
    return null;
  }
}
