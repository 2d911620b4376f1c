import { deepestLevel, parseStrictJson, StrictJsonError, type JsonProblem } from '../json/strict-json.js';
import type { Credential } from '../policy/facts.js';
import { compileIpRanges } from '../policy/ip-ranges.js';
import { compileOriginPatterns } from '../policy/origins.js';
import { memoize } from '../policy/memoize.js';
import { compilePermissions } from '../policy/permissions.js';
import Type, { Compile, type Static, type TSchema } from '../typebox/typebox.js';

/** Maximum number of entries of a list in a record; a record with a longer list is rejected, not truncated. */
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
});

// For a value that matches neither type of a union, the error describes the first type: the list.
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
  /** Id of the registry's database. Absent in earlier releases. */
  database: Type.Optional(Type.String({ minLength: 1, maxLength: 64 })),
  /** Run ids of the servers whose records the registry compared with its database. Absent in earlier releases. */
  servers: Type.Optional(
    Type.Array(Type.String({ pattern: '^[0-9a-zA-Z_-]{1,64}$' }), { minItems: 1, maxItems: 1000 }),
  ),
  /** Highest number of replicas that the registry has seen; any of them may be promoted. */
  replicas: Type.Optional(Type.Integer({ minimum: 0, maximum: 1000 })),
  /** Whether the registry replies to gateways that request a record. Absent in earlier releases, which do not reply. */
  asks: Type.Optional(Type.Boolean()),
};

/** Record layout version that this reader supports. */
const metaRecordSchema = Type.Object({ version: Type.Literal(1), ...metaMembers });

/** A different version, so that gateways of earlier releases do not treat the store as complete. */
const fillingRecordSchema = Type.Object({ version: Type.Literal(2), filling: Type.Literal(true), ...metaMembers });

/** `mg:meta` of a seeded store: its database and servers. */
export type MetaRecord = Static<typeof metaRecordSchema>;

/**
 * `mg:meta` while an emptied store is being filled: a record exists once a gateway has requested it from the registry.
 */
export type FillingRecord = Static<typeof fillingRecordSchema>;

/** Record stored under `mg:key:<lookupId>`. Additional fields are ignored. */
export type KeyRecord = Static<typeof keyRecordSchema>;

/** Record stored under `mg:merchant:<merchantId>`. */
export type MerchantRecord = Static<typeof merchantRecordSchema>;

/**
 * Why a record cannot be used:
 * - `malformed`: it does not match its schema;
 * - `missing`: a key refers to a merchant without a record;
 * - `unsealed`: it has no seal;
 * - `wrong_seal`: its seal is from an unknown secret, or for another name or text;
 * - `earlier_generation`: it belongs to a history that has ended.
 */
export type RecordProblem = 'malformed' | 'missing' | 'unsealed' | 'wrong_seal' | 'earlier_generation';

/** A record that cannot be used. It counts as a store outage, never as a result. */
export class MalformedRecord extends Error {
  readonly reason: RecordProblem;

  constructor(message: string, { reason = 'malformed', ...options }: ErrorOptions & { reason?: RecordProblem } = {}) {
    super(message, options);
    this.name = 'MalformedRecord';
    this.reason = reason;
  }
}

/**
 * Parses the JSON of a record. JSON.parse keeps the last of two members with the same name, so the writer may have
 * meant another status or expiry than the one that takes effect.
 * @throws MalformedRecord; its message does not quote the text, which may contain secrets
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
  'repeated-name': 'the record has a member more than once',
  'forbidden-name': 'the record has a member named __proto__',
  'too-deep': `the record is nested more than ${deepestLevel} levels deep`,
  'too-precise': 'the record has a number with more digits than can be represented',
};

/**
 * Parses `mg:meta` of a seeded store with a supported record layout.
 * @throws MalformedRecord
 */
export const parseMetaRecord = recordParser(metaRecordSchema);

/**
 * Parses `mg:meta` of a store that is being filled.
 * @throws MalformedRecord
 */
export const parseFillingRecord = recordParser(fillingRecordSchema);

/**
 * Parses a key's record.
 * @throws MalformedRecord
 */
export const parseKeyRecord = recordParser(keyRecordSchema);

/**
 * Parses a merchant's record.
 * @throws MalformedRecord
 */
export const parseMerchantRecord = recordParser(merchantRecordSchema);

/** The revision of the change that wrote a record. */
interface OfRevision {
  readonly revision: number;
}

/** A key's part of a credential. */
export type CompiledKey = OfRevision &
  Pick<
    Credential,
    'keyId' | 'merchantId' | 'environment' | 'keyStatus' | 'keyStatusChangedAt' | 'expiresAt' | 'permissions'
  >;

/** A merchant's part of a credential. */
export type CompiledMerchant = OfRevision &
  Pick<
    Credential,
    'merchantId' | 'merchantStatus' | 'merchantStatusChangedAt' | 'goLive' | 'ipAllowlist' | 'originAllowlist'
  >;

/**
 * Parses a key's record and compiles its permissions, so that requests only do look-ups.
 * @throws MalformedRecord also for an invalid permission or date
 */
export function compileKeyRecord(value: unknown): CompiledKey {
  const key = parseKeyRecord(value);
  return compiling(() => ({
    keyId: key.keyId,
    merchantId: key.merchantId,
    environment: key.environment,
    keyStatus: key.status,
    keyStatusChangedAt: changedAt(key),
    expiresAt: key.expiresAt === null ? null : parseTimestamp(key.expiresAt, 'expiresAt'),
    permissions: permissionsOf(JSON.stringify(key.permissions)),
    revision: key.revision,
  }));
}

/**
 * Permissions by their entries as JSON, shared: many keys have the same ones, and a hundred thousand keys may be
 * cached.
 */
const permissionsOf = memoize(1_000, (entries) => compilePermissions(JSON.parse(entries) as string[]));

/**
 * Parses a merchant's record and compiles its allowlists.
 * @throws MalformedRecord also for an invalid allowlist entry
 */
export function compileMerchantRecord(value: unknown): CompiledMerchant {
  const merchant = parseMerchantRecord(value);
  return compiling(() => ({
    merchantId: merchant.merchantId,
    merchantStatus: merchant.status,
    merchantStatusChangedAt: changedAt(merchant),
    goLive: merchant.goLive,
    ipAllowlist: merchant.ipAllowlist === null ? null : compileIpRanges(merchant.ipAllowlist),
    originAllowlist: merchant.originAllowlist === null ? null : compileOriginPatterns(merchant.originAllowlist),
    revision: merchant.revision,
  }));
}

/**
 * Joins a key and its merchant. Copies field by field: this runs for every request, and a spread costs ten times as
 * much.
 */
export function joinCredential(key: CompiledKey, merchant: CompiledMerchant): Credential {
  return {
    keyId: key.keyId,
    merchantId: key.merchantId,
    environment: key.environment,
    keyStatus: key.keyStatus,
    keyStatusChangedAt: key.keyStatusChangedAt,
    expiresAt: key.expiresAt,
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
    const reason = error instanceof Error ? error.message : 'the record cannot be compiled';
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

/** Rejects the 30th of February: Date.parse reads it as the 2nd of March, so a key would outlive its expiry. */
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
