import { deepestLevel, parseStrictJson, StrictJsonError, type JsonProblem } from '../json/strict-json.js';
import type { Credential } from '../policy/facts.js';
import { compileIpRanges } from '../policy/ip-ranges.js';
import { compileOriginPatterns } from '../policy/origins.js';
import { memoize } from '../policy/memoize.js';
import { compilePermissions } from '../policy/permissions.js';
import Type, { Compile, type Static, type TSchema } from '../typebox/typebox.js';

/** The most entries that a list in a record may have; a longer one is refused, not cut. */
export const maxListEntries = 10_000;

const identifier = Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' });
const entries = Type.Array(Type.String({ maxLength: 512 }), { maxItems: maxListEntries });
const revision = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });

const keyRecordSchema = Type.Object({
  keyId: identifier,
  merchantId: identifier,
  environment: Type.Enum(['live', 'test']),
  status: Type.String({ minLength: 1, maxLength: 32 }),
  permissions: entries,
  expiresAt: Type.Union([Type.String({ maxLength: 40 }), Type.Null()]),
  revision,
});

// Of a value that is neither, the first kind is what its problem tells of: the list.
const merchantRecordSchema = Type.Object({
  merchantId: identifier,
  name: Type.String({ maxLength: 256 }),
  status: Type.String({ minLength: 1, maxLength: 32 }),
  goLive: Type.Boolean(),
  ipAllowlist: Type.Union([entries, Type.Null()]),
  originAllowlist: Type.Union([entries, Type.Null()]),
  revision,
});

const metaMembers = {
  generation: Type.String({ minLength: 1, maxLength: 64 }),
  projectedAt: Type.String({ maxLength: 40 }),
  /** The registry's database. An earlier release of the registry names none. */
  database: Type.Optional(Type.String({ minLength: 1, maxLength: 64 })),
  /** The run ids of the servers whose records the registry compared with its database. An earlier release names none. */
  servers: Type.Optional(
    Type.Array(Type.String({ pattern: '^[0-9a-zA-Z_-]{1,64}$' }), { minItems: 1, maxItems: 1000 }),
  ),
  /** The most replicas that the registry has seen behind the server: any of them may take its place. */
  replicas: Type.Optional(Type.Integer({ minimum: 0, maximum: 1000 })),
  /** Whether the registry answers gateways that ask for a record. One of an earlier release does not. */
  asks: Type.Optional(Type.Boolean()),
};

/** The layout of the records that this reader knows. */
const metaRecordSchema = Type.Object({ version: Type.Literal(1), ...metaMembers });

/** Another version, so that a gateway of an earlier release does not take the store for complete. */
const fillingRecordSchema = Type.Object({ version: Type.Literal(2), filling: Type.Literal(true), ...metaMembers });

/** What `mg:meta` says: the store is seeded, with whose records, and on which servers. */
export type MetaRecord = Static<typeof metaRecordSchema>;

/** What it says while an emptied store is filled: a record is there once the registry was asked for it. */
export type FillingRecord = Static<typeof fillingRecordSchema>;

/** What a key store holds under `mg:key:<lookupId>`. Fields beyond these are ignored. */
export type KeyRecord = Static<typeof keyRecordSchema>;

/** What a key store holds under `mg:merchant:<merchantId>`. */
export type MerchantRecord = Static<typeof merchantRecordSchema>;

/**
 * Why a record cannot be used: it does not say what a record must; it is a merchant's that is not there, although a key names it;
 * it is not sealed, or not by a secret that is accepted, or not as what it stands for; or it is of a history that has ended.
 */
export type RecordProblem = 'malformed' | 'missing' | 'unsealed' | 'wrong_seal' | 'earlier_generation';

/** A record that does not say what a record must. It is a store that cannot be asked, never an answer. */
export class MalformedRecord extends Error {
  readonly reason: RecordProblem;

  constructor(message: string, { reason = 'malformed', ...options }: ErrorOptions & { reason?: RecordProblem } = {}) {
    super(message, options);
    this.name = 'MalformedRecord';
    this.reason = reason;
  }
}

/**
 * Reads the JSON of a record. JSON.parse keeps the last of two members of one name, so that a writer may have meant another
 * status or expiry than the one that counts.
 * @throws MalformedRecord whose message does not quote the text: it might hold what should not be there
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
  'too-precise': 'the record has a number with more digits than can be kept',
};

/**
 * Reads `mg:meta`, which says that the store is seeded, and with records of a layout that is known here.
 * @throws MalformedRecord
 */
export const parseMetaRecord = recordParser(metaRecordSchema);

/**
 * Reads `mg:meta` as it is while the store is filled.
 * @throws MalformedRecord
 */
export const parseFillingRecord = recordParser(fillingRecordSchema);

/**
 * Reads a key's record.
 * @throws MalformedRecord
 */
export const parseKeyRecord = recordParser(keyRecordSchema);

/**
 * Reads a merchant's record.
 * @throws MalformedRecord
 */
export const parseMerchantRecord = recordParser(merchantRecordSchema);

/** The number of the change that a record is of. */
interface OfRevision {
  readonly revision: number;
}

/** A key's part of a credential. */
export type CompiledKey = OfRevision &
  Pick<Credential, 'keyId' | 'merchantId' | 'environment' | 'keyStatus' | 'expiresAt' | 'permissions'>;

/** A merchant's part of a credential. */
export type CompiledMerchant = OfRevision &
  Pick<Credential, 'merchantId' | 'merchantStatus' | 'goLive' | 'ipAllowlist' | 'originAllowlist'>;

/**
 * Reads a key's record and compiles its permissions, so that a request only looks up.
 * @throws MalformedRecord also for a permission or date that cannot be understood
 */
export function compileKeyRecord(value: unknown): CompiledKey {
  const key = parseKeyRecord(value);
  return compiling(() => ({
    keyId: key.keyId,
    merchantId: key.merchantId,
    environment: key.environment,
    keyStatus: key.status,
    expiresAt: key.expiresAt === null ? null : parseMoment(key.expiresAt),
    permissions: permissionsOf(JSON.stringify(key.permissions)),
    revision: key.revision,
  }));
}

/** Permissions by their entries as JSON: many keys have the same ones, and a hundred thousand keys may be held. */
const permissionsOf = memoize(1_000, (entries) => compilePermissions(JSON.parse(entries) as string[]));

/**
 * Reads a merchant's record and compiles its allowlists.
 * @throws MalformedRecord also for an allowlist entry that cannot be understood
 */
export function compileMerchantRecord(value: unknown): CompiledMerchant {
  const merchant = parseMerchantRecord(value);
  return compiling(() => ({
    merchantId: merchant.merchantId,
    merchantStatus: merchant.status,
    goLive: merchant.goLive,
    ipAllowlist: merchant.ipAllowlist === null ? null : compileIpRanges(merchant.ipAllowlist),
    originAllowlist: merchant.originAllowlist === null ? null : compileOriginPatterns(merchant.originAllowlist),
    revision: merchant.revision,
  }));
}

/** Joins a key and its merchant. Field by field: this runs for every request, and a spread costs ten times as much. */
export function joinCredential(key: CompiledKey, merchant: CompiledMerchant): Credential {
  return {
    keyId: key.keyId,
    merchantId: key.merchantId,
    environment: key.environment,
    keyStatus: key.keyStatus,
    expiresAt: key.expiresAt,
    permissions: key.permissions,
    merchantStatus: merchant.merchantStatus,
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

const isoMoment = /^(?<day>\d{4}-\d{2}-\d{2})T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})$/;

function parseMoment(text: string): number {
  const day = isoMoment.exec(text)?.groups?.day;
  const moment = day === undefined || !isCalendarDay(day) ? NaN : Date.parse(text);
  if (Number.isNaN(moment)) throw new MalformedRecord('expiresAt is not an ISO 8601 date and time with its zone');
  return moment;
}

/** Date.parse would read the 30th of February as the 2nd of March, and a key would outlive its end. */
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
