import type { Problem } from '../../rest/envelope.js';
import { Refusal } from '../../rest/refusal.js';
import { fieldProblems } from '../../rest/validation.js';
import { parseDateTime } from '../../rest/moment.js';
import type { Static } from '../../typebox/typebox.js';
import { holdsApiKey, holdsApiKeyMessage } from '../fields.js';
import { latestExpiry } from '../keys/expiry.js';
import { permissionProblem } from '../keys/permission-problem.js';
import { acceptAllowlists } from '../merchants/allowlists.js';
import type { MerchantSettings } from '../merchants/repository.js';
import { keyEntrySchema, merchantEntrySchema } from './schema.js';

/** A merchant to import, in canonical form. */
export interface MerchantEntry extends MerchantSettings {
  readonly type: 'merchant';
  readonly merchantId: string;
}

/** A key to import, in canonical form: lower-case lookup id (hash of the key), no duplicate permissions. */
export interface KeyEntry {
  readonly type: 'key';
  readonly lookupId: string;
  readonly merchantId: string;
  readonly environment: 'live' | 'test';
  readonly status: string;
  readonly permissions: readonly string[];
  /** Time of expiry in milliseconds since 1970; null if the key never expires. */
  readonly expiresAt: number | null;
  readonly label: string | null;
  /** The id of the key; null: the import generates an id. */
  readonly keyId: string | null;
}

/** A merchant or key to import. */
export type Entry = MerchantEntry | KeyEntry;

const merchantProblems = fieldProblems(merchantEntrySchema, 'field');
const keyProblems = fieldProblems(keyEntrySchema, 'field');

/**
 * Parses one entry of an import, or returns all of its problems. The messages never contain text that could be an API
 * key.
 */
export function readEntry(value: unknown): Entry | readonly Problem[] {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return [{ path: '', message: 'must be a JSON object' }];
  }
  if (holdsApiKey(JSON.stringify(value))) return [{ path: '', message: holdsApiKeyMessage }];
  return 'type' in value && value.type === 'merchant' ? readMerchant(value) : readKey(value);
}

function readMerchant(value: object): MerchantEntry | readonly Problem[] {
  const problems = merchantProblems(value);
  if (problems.length > 0) return problems;
  const { confirm, ...given } = value as Static<typeof merchantEntrySchema>;
  try {
    const { ipAllowlist = null, originAllowlist = null } = acceptAllowlists(given, confirm);
    return { ...given, ipAllowlist, originAllowlist };
  } catch (error) {
    if (error instanceof Refusal) return error.problems;
    throw error;
  }
}

function readKey(value: object): KeyEntry | readonly Problem[] {
  const problems = keyProblems(value);
  if (problems.length > 0) return problems;
  const given = value as Static<typeof keyEntrySchema>;
  const { expiresAt: end = null, label = null, keyId = null } = given;
  const expiresAt = end === null ? null : parseDateTime(end);
  const wrong = [
    permissionProblem(given.permissions),
    end !== null && (expiresAt === null || expiresAt < 0 || expiresAt > latestExpiry)
      ? { path: 'expiresAt', message: 'expiresAt must be a date and time that exists, from 1970 to 9999' }
      : null,
  ].filter((problem) => problem !== null);
  if (wrong.length > 0) return wrong;
  const [lookupId, permissions] = [given.lookupId.toLowerCase(), [...new Set(given.permissions)]];
  return { ...given, type: 'key', lookupId, permissions, expiresAt, label, keyId };
}
