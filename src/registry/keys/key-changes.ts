import type { Author } from '../events/author.js';
import { generateApiKey, lookupIdOf } from '../../gateway/api-key.js';
import { Refusal } from '../../rest/refusal.js';
import { makeChange, type Change } from '../change.js';
import { beforeFirstReset } from '../events/repository.js';
import { findMerchant } from '../merchants/repository.js';
import { newId, type RegistryContext } from '../registry-context.js';
import { settle } from '../restores/settle.js';
import { expiryIn, type Expiry } from './expiry.js';
import { permissionProblem, resourceProblem } from './permission-problem.js';
import { endKey, findKey, insertKey, toApiKey, type KeyToAdd, type StoredKey } from './repository.js';
import type { ApiKey, KeyReset, NewKey } from './schema.js';

/** Members can create a key only while their merchant has fewer valid keys than this in the key's environment. */
const mostKeys = 1000;

/** A new key with its secret (`key`), which is returned only when the key is created. */
export interface CreatedKey extends ApiKey {
  readonly key: string;
}

/** Creates a key for a merchant. @throws Refusal */
export function createKey(
  context: RegistryContext,
  author: Author,
  merchantId: string,
  { environment, permissions: given = ['*'], label, ...expiry }: NewKey,
): Promise<CreatedKey> {
  const problem = permissionProblem(given) ?? resourceProblem(given, context.resources);
  if (problem !== null) throw Refusal.invalid([problem]);
  const permissions = JSON.stringify([...new Set(given)]);
  return makeChange(context, author, async (change) => {
    await findMerchant(change.transaction, merchantId);
    const expires_at = acceptExpiry(expiry, change.now);
    await requireRoom(change, author, { merchant_id: merchantId, environment });
    const grant = { merchant_id: merchantId, environment, permissions, label: label ?? null, expires_at };
    const { key, row } = await addKey(context, change, grant);
    const after = toApiKey(row);
    const event = { action: 'key.created', merchantId, keyId: row.key_id, before: null, after } as const;
    return { result: { ...after, key }, changed: { events: [event], records: [recordOf(row)] } };
  });
}

/**
 * A revoked key, and as `revision` the number of the change that gateways have to acknowledge. Each request gets a new
 * revision. If the key was already revoked, `key.revision` is still the revision of an earlier change.
 */
export interface Revocation {
  readonly key: ApiKey;
  readonly revision: number;
}

/**
 * Revokes a key permanently. If the key is already revoked, writes its record to the gateways' store again, because the
 * store could contain an older, active record.
 * @throws Refusal
 */
export function revokeKey(context: RegistryContext, author: Author, keyId: string): Promise<Revocation> {
  return makeChange(context, author, async (change) => {
    const { revision } = change;
    const row = await findKey(change.transaction, keyId);
    const [before, records] = [toApiKey(row), [recordOf(row)]];
    const wasHeldBack = await settle(change, keyId);
    // Returns the new revision, because gateways must acknowledge this change too. If the store lost the first
    // revocation, gateways could have read an older, active record after they acknowledged that revocation.
    if (row.status === 'REVOKED' && !wasHeldBack)
      return { result: { key: before, revision }, changed: { events: [], records } };
    const after = toApiKey(await endKey(change, keyId, { status: 'REVOKED' }));
    const event = { action: 'key.revoked', merchantId: row.merchant_id, keyId, before, after } as const;
    return { result: { key: after, revision }, changed: { events: [event], records } };
  });
}

/**
 * Replaces a key with a new one that has the same environment, permissions and label. The old key ends now, or after
 * the grace period.
 * @throws Refusal
 */
export function resetKey(
  context: RegistryContext,
  author: Author,
  keyId: string,
  { graceSeconds = 0, ...expiry }: KeyReset,
): Promise<CreatedKey & { readonly replaces: ApiKey }> {
  return makeChange(context, author, async (change) => {
    const old = await findKey(change.transaction, keyId);
    const { now } = change;
    if (old.status !== 'ACTIVE' || (old.expires_at ?? Infinity) <= now) {
      throw new Refusal(409, 'Only an active key can be reset: create a new key');
    }
    const { merchant_id, environment, permissions, label } = old;
    // By default, the new key inherits the expiry of the old key: a reset must not make a temporary key permanent.
    const expires_at = acceptExpiry(expiry, now) ?? (await ownExpiryOf(change, old));
    // Without a grace period, the number of valid keys stays the same. So a merchant at the maximum can still replace a
    // leaked key.
    if (graceSeconds > 0) await requireRoom(change, author, old);
    const { key, row } = await addKey(context, change, { merchant_id, environment, permissions, label, expires_at });
    const graceEnds = Math.min(now + graceSeconds * 1000, old.expires_at ?? Infinity);
    await settle(change, keyId);
    const ended = await endKey(change, keyId, graceSeconds === 0 ? { status: 'REVOKED' } : { expires_at: graceEnds });
    const [before, replaces, after] = [toApiKey(old), toApiKey(ended), toApiKey(row)];
    const events = [
      { action: 'key.reset', merchantId: merchant_id, keyId, before, after: replaces },
      { action: 'key.created', merchantId: merchant_id, keyId: row.key_id, before: null, after },
    ] as const;
    return { result: { ...after, key, replaces }, changed: { events, records: [recordOf(row), recordOf(old)] } };
  });
}

/**
 * Returns the expiry that a key had before its first reset, in milliseconds since 1970; null if the key never expires.
 * The current expiry does not show this, because it could be the end of the grace period of a reset.
 */
async function ownExpiryOf({ transaction }: Change, { key_id, expires_at }: StoredKey): Promise<number | null> {
  const before = await beforeFirstReset(transaction, key_id);
  if (before === null) return expires_at;
  return typeof before.expiresAt === 'string' ? Date.parse(before.expiresAt) : null;
}

/**
 * Limits the creation of keys by members: the merchant must have fewer than `mostKeys` valid keys in the environment.
 * Administrators of the platform have no limit.
 * @throws Refusal
 */
async function requireRoom(
  { transaction, now }: Change,
  { memberOf }: Author,
  { merchant_id, environment }: Pick<StoredKey, 'merchant_id' | 'environment'>,
): Promise<void> {
  if (memberOf === undefined) return;
  const { total } = await transaction
    .selectFrom('api_keys')
    .select((it) => it.fn.countAll<number>().as('total'))
    .where('merchant_id', '=', merchant_id)
    .where('environment', '=', environment)
    .where('status', '=', 'ACTIVE')
    .where((it) => it.or([it('expires_at', 'is', null), it('expires_at', '>', now)]))
    .executeTakeFirstOrThrow();
  if (total < mostKeys) return;
  throw new Refusal(
    409,
    `The merchant has ${total} valid ${environment} keys, but members can create a key only while there are fewer than ${mostKeys}: revoke keys that are not needed any more`,
  );
}

async function addKey(
  { random, pepper }: RegistryContext,
  change: Change,
  grant: Omit<KeyToAdd, 'key_id' | 'lookup_id'>,
): Promise<{ key: string; row: StoredKey }> {
  const key = generateApiKey(grant.environment, random);
  const ids = { key_id: newId('key', change.now, random), lookup_id: lookupIdOf(key, pepper) };
  return { key, row: await insertKey(change, { ...grant, ...ids }) };
}

function recordOf({ lookup_id }: StoredKey): string {
  return `key:${lookup_id}`;
}

function acceptExpiry(expiry: Expiry, now: number): number | null {
  const expires = expiryIn(expiry, now);
  if (typeof expires === 'object' && expires !== null) throw Refusal.invalid([expires]);
  return expires;
}
