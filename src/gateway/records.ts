import { deepestLevel, parseStrictJson, StrictJsonError, type JsonProblem } from '../json/strict-json.js';
import type { Credential } from '../policy/facts.js';
import { compileIpRanges } from '../policy/ip-ranges.js';
import { compileOriginPatterns } from '../policy/origin-patterns.js';
import { memoize } from '../policy/memoize.js';
import { compilePermissions } from '../policy/permissions.js';
import Type, { Compile, type Static, type TSchema } from '../typebox/typebox.js';

/**
 * Maximum number of entries of a list in a record. A record with a longer list is rejected, because truncating an
 * allowlist would change its meaning.
 */
export const maxListEntries = 10_000;

const identifier = Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' });
const entries = Type.Array(Type.String({ maxLength: 512 }), { maxItems: maxListEntries });
const statusChangedAt = Type.Optional(Type.String({ maxLength: 40 }));
const revision = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });

const keyRecordSchema = Type.Object({
  keyId: identifier,
  merchantId: identifier,
  environment: Type.Enum(['live', 'test']),
  status: Type.String({ minLength: 1, maxLength: 32 }),
  permissions: entries,
  expiresAt: Type.Union([Type.String({ maxLength: 40 }), Type.Null()]),
  revision,
  statusChangedAt,
  // Records of earlier releases lack both fields below. Newer records lack `label` if the key has no label, and lack
  // `graceEndsAt` if the key was not reset.
  label: Type.Optional(Type.String({ maxLength: 256 })),
  graceEndsAt: Type.Optional(Type.String({ maxLength: 40 })),
});

// Each union names the list before null, because the error for a wrong value describes the first type of the union.
const merchantRecordSchema = Type.Object({
  merchantId: identifier,
  name: Type.String({ maxLength: 256 }),
  status: Type.String({ minLength: 1, maxLength: 32 }),
  goLive: Type.Boolean(),
  ipAllowlist: Type.Union([entries, Type.Null()]),
  originAllowlist: Type.Union([entries, Type.Null()]),
  revision,
  statusChangedAt,
});

const metaMembers = {
  generation: Type.String({ minLength: 1, maxLength: 64 }),
  projectedAt: Type.String({ maxLength: 40 }),
  /** Id of the registry's database. Absent in records of earlier releases. */
  database: Type.Optional(Type.String({ minLength: 1, maxLength: 64 })),
  /**
   * Run ids of the Redis servers whose records the registry has compared with its database. Absent in records of
   * earlier releases.
   */
  servers: Type.Optional(
    Type.Array(Type.String({ pattern: '^[0-9a-zA-Z_-]{1,64}$' }), { minItems: 1, maxItems: 1000 }),
  ),
  /** Highest number of replicas that the registry has seen. Each of them could be promoted to primary. */
  replicas: Type.Optional(Type.Integer({ minimum: 0, maximum: 1000 })),
  /**
   * Whether the registry replies to gateways that request a missing record. Earlier releases omit this field and do not
   * reply.
   */
  asks: Type.Optional(Type.Boolean()),
};

/** The schema of the meta record (`mg:meta`) of a store that contains all records. Its version is always 1. */
const metaRecordSchema = Type.Object({ version: Type.Literal(1), ...metaMembers });

/**
 * The schema of the meta record of a store that the registry is refilling. Its version is 2, so that gateways of
 * earlier releases reject it.
 */
const fillingRecordSchema = Type.Object({ version: Type.Literal(2), filling: Type.Literal(true), ...metaMembers });

/** The value of `mg:meta` in a complete store. It names the registry's database and the store's Redis servers. */
export type MetaRecord = Static<typeof metaRecordSchema>;

/**
 * The value of `mg:meta` while the registry refills an emptied store. Until the store is complete, a gateway requests
 * each missing record from the registry.
 */
export type FillingRecord = Static<typeof fillingRecordSchema>;

/** The record of a key, stored under `mg:key:<lookupId>`. Additional fields are ignored. */
export type KeyRecord = Static<typeof keyRecordSchema>;

/** The record of a merchant, stored under `mg:merchant:<merchantId>`. */
export type MerchantRecord = Static<typeof merchantRecordSchema>;

/**
 * Why a record cannot be used. A seal is the registry's HMAC over the name and text of a record. A generation is an
 * unbroken history of changes of the store. Reasons:
 * - `malformed`: the record does not match its schema, or is not strict JSON;
 * - `missing`: a key refers to a merchant without a record;
 * - `unsealed`: the record has no seal;
 * - `wrong_seal`: its seal was made with an unknown secret, or for another name or text;
 * - `earlier_generation`: the record belongs to an earlier generation of the store.
 */
export type RecordProblem = 'malformed' | 'missing' | 'unsealed' | 'wrong_seal' | 'earlier_generation';

/** Thrown if a record cannot be used. This counts as an outage of the key store, never as an unknown key. */
export class MalformedRecord extends Error {
  readonly reason: RecordProblem;

  constructor(message: string, { reason = 'malformed', ...options }: ErrorOptions & { reason?: RecordProblem } = {}) {
    super(message, options);
    this.name = 'MalformedRecord';
    this.reason = reason;
  }
}

/**
 * Parses the JSON of a record, and rejects text that parsers could read differently. For example, if a record has two
 * fields named `status`, JSON.parse keeps the second field, but another parser could keep the first.
 * @throws MalformedRecord whose message does not quote the text, which may contain secrets
 */
export function parseRecordText(text: string): unknown {
  try {
    return parseStrictJson(text);
  } catch (error) {
    if (!(error instanceof StrictJsonError)) throw error;
    throw new MalformedRecord(jsonProblems[error.problem]);
  }
}

const jsonProblems: Readonly<Record<JsonProblem, string>> = {
  invalid: 'the record is not JSON',
  'repeated-name': 'the record has two fields with the same name',
  'forbidden-name': 'the record has a field named __proto__',
  'too-deep': `the record is nested more than ${deepestLevel} levels deep`,
  'too-precise': 'the record has a number that cannot be stored exactly, because it has too many digits',
};

/**
 * Parses the value of `mg:meta` of a complete store.
 * @throws MalformedRecord
 */
export const parseMetaRecord = recordParser(metaRecordSchema);

/**
 * Parses the value of `mg:meta` of a store that is being refilled.
 * @throws MalformedRecord
 */
export const parseFillingRecord = recordParser(fillingRecordSchema);

/**
 * Parses the record of a key.
 * @throws MalformedRecord
 */
export const parseKeyRecord = recordParser(keyRecordSchema);

/**
 * Parses the record of a merchant.
 * @throws MalformedRecord
 */
export const parseMerchantRecord = recordParser(merchantRecordSchema);

/** The revision (change number) of the database change that wrote a record. */
interface OfRevision {
  readonly revision: number;
}

/** The fields of a credential that come from the record of the key. */
export type CompiledKey = OfRevision &
  Pick<
    Credential,
    | 'keyId'
    | 'keyLabel'
    | 'merchantId'
    | 'environment'
    | 'keyStatus'
    | 'keyStatusChangedAt'
    | 'expiresAt'
    | 'graceEndsAt'
    | 'permissions'
  >;

/** The fields of a credential that come from the record of the merchant. */
export type CompiledMerchant = OfRevision &
  Pick<
    Credential,
    | 'merchantId'
    | 'merchantName'
    | 'merchantStatus'
    | 'merchantStatusChangedAt'
    | 'goLive'
    | 'ipAllowlist'
    | 'originAllowlist'
  >;

/**
 * Parses the record of a key and compiles its permissions, so that requests need not parse them.
 * @throws MalformedRecord also for an invalid permission or date
 */
export function compileKeyRecord(value: unknown): CompiledKey {
  const key = parseKeyRecord(value);
  return compiling(() => ({
    keyId: key.keyId,
    keyLabel: key.label ?? null,
    merchantId: key.merchantId,
    environment: key.environment,
    keyStatus: key.status,
    keyStatusChangedAt: changedAt(key),
    expiresAt: key.expiresAt === null ? null : parseTimestamp(key.expiresAt, 'expiresAt'),
    graceEndsAt: key.graceEndsAt === undefined ? null : parseTimestamp(key.graceEndsAt, 'graceEndsAt'),
    permissions: permissionsOf(JSON.stringify(key.permissions)),
    revision: key.revision,
  }));
}

/**
 * Caches compiled permissions by the JSON of their entries. This saves memory, because up to 100,000 keys are cached,
 * and many have the same permissions.
 */
const permissionsOf = memoize(1_000, (entries) => compilePermissions(JSON.parse(entries) as string[]));

/**
 * Parses the record of a merchant and compiles its allowlists.
 * @throws MalformedRecord also for an invalid allowlist entry or date
 */
export function compileMerchantRecord(value: unknown): CompiledMerchant {
  const merchant = parseMerchantRecord(value);
  return compiling(() => ({
    merchantId: merchant.merchantId,
    merchantName: merchant.name,
    merchantStatus: merchant.status,
    merchantStatusChangedAt: changedAt(merchant),
    goLive: merchant.goLive,
    ipAllowlist: merchant.ipAllowlist === null ? null : compileIpRanges(merchant.ipAllowlist),
    originAllowlist: merchant.originAllowlist === null ? null : compileOriginPatterns(merchant.originAllowlist),
    revision: merchant.revision,
  }));
}

/**
 * Joins a key and its merchant. This runs for every request, so it copies each field: object spread takes ten times as
 * long.
 */
export function joinCredential(key: CompiledKey, merchant: CompiledMerchant): Credential {
  return {
    keyId: key.keyId,
    keyLabel: key.keyLabel,
    merchantId: key.merchantId,
    merchantName: merchant.merchantName,
    environment: key.environment,
    keyStatus: key.keyStatus,
    keyStatusChangedAt: key.keyStatusChangedAt,
    expiresAt: key.expiresAt,
    graceEndsAt: key.graceEndsAt,
    permissions: key.permissions,
    merchantStatus: merchant.merchantStatus,
    merchantStatusChangedAt: merchant.merchantStatusChangedAt,
    goLive: merchant.goLive,
    ipAllowlist: merchant.ipAllowlist,
    originAllowlist: merchant.originAllowlist,
    keyRevision: key.revision,
    merchantRevision: merchant.revision,
  };
}

function compiling<Compiled>(compile: () => Compiled): Compiled {
  try {
    return compile();
  } catch (error) {
    const reason = error instanceof Error ? error.message : 'the record has an invalid permission or allowlist';
    throw new MalformedRecord(reason, { cause: error });
  }
}

const isoTimestamp = /^(?<day>\d{4}-\d{2}-\d{2})T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})$/;

function changedAt({ statusChangedAt: text }: Pick<KeyRecord, 'statusChangedAt'>): number | null {
  return text === undefined ? null : parseTimestamp(text, 'statusChangedAt');
}

function parseTimestamp(text: string, name: string): number {
  const day = isoTimestamp.exec(text)?.groups?.day;
  const moment = day === undefined || !isCalendarDay(day) ? NaN : Date.parse(text);
  if (Number.isNaN(moment)) throw new MalformedRecord(`${name} is not an ISO 8601 date and time with its zone`);
  return moment;
}

/** Whether the day exists. Date.parse would read February 30 as March 2, so a key would stay valid after its expiry. */
function isCalendarDay(day: string): boolean {
  const midnight = new Date(`${day}T00:00:00Z`);
  return !Number.isNaN(midnight.getTime()) && midnight.toISOString().startsWith(day);
}

function recordParser<Schema extends TSchema>(schema: Schema): (value: unknown) => Static<Schema> {
  const validator = Compile(schema);
  return (value) => {
    if (validator.Check(value)) return value;
    const problem = validator.Errors(value)[0];
    throw new MalformedRecord(
      problem === undefined ? 'not a record' : `${problem.instancePath || 'the record'} ${problem.message}`,
    );
  };
}
