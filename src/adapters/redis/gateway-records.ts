import Type, { Compile, type Static } from '../../typebox/typebox.js';
import { highestRevision } from './record-text.js';

const generation = Type.String({ minLength: 1, maxLength: 64 });
const beat = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
/** `maxStaleSeconds` may be up to one day. */
const lifetimeMilliseconds = Type.Integer({ minimum: 1, maximum: 86_401_000 });

const acknowledgementForm = Type.Object({
  instanceId: Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' }),
  revision: Type.Integer({ minimum: 0, maximum: highestRevision }),
  environment: Type.Enum(['live', 'test']),
  host: Type.String({ maxLength: 255 }),
  /** ISO 8601. */
  startedAt: Type.String({ maxLength: 40 }),
  /** The generation of the revision. A gateway of an earlier release omits this field and all that follow. */
  generation: Type.Optional(generation),
  /** The number of the gateway's beat, counted from 1. */
  beat: Type.Optional(beat),
  /** How long the gateway may use its cache after it was last sure of its server, plus one second. */
  lifetimeMilliseconds: Type.Optional(lifetimeMilliseconds),
  version: Type.Optional(Type.String({ maxLength: 64 })),
  /** The gateway's clock at the time of writing, in milliseconds since 1970; for display only. */
  now: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  /** The gateway has decided its last request. */
  leaving: Type.Optional(Type.Boolean()),
});

/** Maximum number of records in one part of a report. */
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
   * Whether the registry knows that no record is missing. A registry of an earlier release omits this field, and
   * replies to no query.
   */
  compared: Type.Optional(Type.Boolean()),
});

const queryReplyForm = Type.Object({ generation, isPresent: Type.Boolean() });

/** What a gateway writes under `mg:ask:<instanceId>:<number>:<record>` to query the registry for a record. */
export const queryText = 'asked';

/** Lifetime of a query, and of the reply that replaces it. */
export const queryLifetimeMilliseconds = 2_000;

/** What a gateway writes under `mg:gateway:<instanceId>` in each beat. */
export type Acknowledgement = Static<typeof acknowledgementForm>;

/**
 * What the registry writes under `mg:grant:<instanceId>`. The gateway is in the registry's roster, in this generation,
 * and the registry has seen this beat.
 */
export type Grant = Static<typeof grantForm>;

/**
 * What a gateway writes under `mg:inactive:<instanceId>:<part>` when the store has lost changes. Contains the inactive
 * or expiring keys and merchants in its cache, and the newest revision that it knew in this generation.
 */
export type InactiveReport = Static<typeof reportForm>;

/**
 * What the registry writes in place of a query: whether the record exists. If so, the registry has just rewritten it.
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

/** The text of a reply, without its seal. */
export function queryReplyText(isPresent: boolean, generation: string): string {
  return JSON.stringify({ generation, isPresent } satisfies QueryReply);
}

/** Parses a stored reply; null for any other text, such as the query. */
export function readQueryReply(text: string): QueryReply | null {
  const value = parsed(text);
  return checkQueryReply.Check(value) ? value : null;
}

/** Parses a stored report; null if it is missing or invalid. */
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
