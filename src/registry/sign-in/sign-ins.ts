import { countedSource } from '../../rest/counted-source.js';
import { Refusal } from '../../rest/refusal.js';
import type { Administrator } from '../administrators/schema.js';
import type { Attempts } from '../administrators/attempts.js';
import type { Caller } from '../administrators/caller.js';
import { digestOf, newToken } from '../administrators/token-text.js';
import { makeUnpublishedChange } from '../change.js';
import type { Author } from '../events/author.js';
import type { NewEvent } from '../events/repository.js';
import { newId, type RegistryContext } from '../registry-context.js';
import { accountOf } from './account.js';
import type { IdentityProvider, Verified } from './provider.js';
import { asProblem, denied, ended, expired, refreshRunning, unavailable, unavailableRefusal } from './refusals.js';
import type { DeviceSignIn, Session } from './schema.js';
import {
  claimTurn,
  deleteEnded,
  endSignIn,
  isFresh,
  lateRefusal,
  refreshMilliseconds,
  requireRoom,
  revokeSession,
} from './queries.js';
import { SecretSeal } from './seal.js';
import type { SignInRow as Row } from './sign-in-row.js';

const second = 1000;
/** How long a session token is valid at most, in milliseconds. */
const sessionMilliseconds = 15 * 60 * second;
/** How long after a sign-in its session tokens can be refreshed, in milliseconds. */
const signInMilliseconds = 12 * 60 * 60 * second;
const longestDeviceSeconds = 30 * 60;
/**
 * How long a sign-in stays stored after its expiry, in milliseconds. During this time, the registry recognises a replay
 * of the sign-in's handle (the client's secret).
 */
const keptMilliseconds = 24 * 60 * 60 * second;
const handleBytes = 32;

type Issued = { readonly administrator: Administrator; readonly end: number } | { readonly cause: string };

/** Dependencies of SignIns. */
export interface SignInOptions extends Pick<RegistryContext, 'database' | 'clock' | 'random'> {
  readonly provider: IdentityProvider;
  readonly attempts: Attempts;
}

/**
 * Signs people in with a device code (RFC 8628). All state is in the database, so any replica can handle each request.
 * A handle is the secret with which a client continues its sign-in. The database contains handles only as hashes, and
 * the provider's secrets only in encrypted form.
 */
export class SignIns {
  readonly #options: SignInOptions;
  readonly #seal: SecretSeal;

  constructor(options: SignInOptions) {
    this.#options = options;
    this.#seal = new SecretSeal(options.provider.options.clientSecret, options.random);
  }

  /**
   * Starts a sign-in.
   * @param address the client's IP address
   * @throws Refusal 429 beyond the limits, 503 if the provider is unavailable
   */
  async start(address: string): Promise<DeviceSignIn> {
    const { database, clock, random, provider } = this.#options;
    const now = clock.now();
    const source = countedSource(address);
    await deleteEnded(database, now - keptMilliseconds);
    await requireRoom(database, source, now);
    const begun = await provider.startDevice().catch(unavailable);
    const id = newId('sig', now, random);
    const handle = this.#newHandle();
    const intervalSeconds = Math.min(Math.max(begun.intervalSeconds, 1), 60);
    const expiresInSeconds = Math.min(Math.max(begun.expiresInSeconds, 1), longestDeviceSeconds);
    await database
      .insertInto('sign_ins')
      .values({
        ...{ id, status: 'PENDING', digest: digestOf(handle), former_digest: null, source },
        ...{ sealed: this.#seal.seal(begun.deviceCode, id), administrator_id: null, token_id: null },
        has_claimed_roles: null,
        ...{ interval_seconds: intervalSeconds, polled_at: now, created_at: now },
        expires_at: now + expiresInSeconds * second,
      })
      .execute();
    const { verificationUri, verificationUriComplete, userCode } = begun;
    return { handle, verificationUri, verificationUriComplete, userCode, intervalSeconds, expiresInSeconds };
  }

  /** Exchanges a handle (secret) for a session token. @throws Refusal, also until the person approves the sign-in */
  async redeem(handle: string, author: Author): Promise<Session> {
    const { clock, provider } = this.#options;
    const row = await this.#find(handle, 'PENDING', author);
    const now = clock.now();
    if (row.expires_at <= now) throw await this.#fail(row, author, 'expired', expired());
    const mayAsk = await claimTurn(this.#options.database, row, row.interval_seconds * second, now);
    if (!mayAsk) throw new Refusal(400, 'Wait for the polling interval before the next request', [], 'slow_down');
    const deviceCode = this.#open(row);
    if (deviceCode === null) throw await this.#fail(row, author, 'client-secret-changed', expired());
    let verified: Verified;
    try {
      verified = await provider.redeemDevice(deviceCode);
    } catch (error) {
      const { kind, reason } = asProblem(error);
      if (kind === 'unavailable') throw unavailableRefusal();
      if (reason === 'authorization_pending') {
        throw new Refusal(400, 'The person has not approved the sign-in yet', [], 'authorization_pending');
      }
      if (reason === 'slow_down') {
        const slower = Math.min(row.interval_seconds + 5, 60);
        await this.#update(row.id, { interval_seconds: slower });
        throw new Refusal(400, 'Increase the polling interval by 5 seconds', [], 'slow_down');
      }
      const isExpired = reason === 'expired_token' || reason === 'invalid_grant';
      throw await this.#fail(row, author, reason, isExpired ? expired() : denied());
    }
    return this.#issue(row, verified, author, now + signInMilliseconds);
  }

  /** Reads the person's claims again, and replaces the session token. @throws Refusal */
  async refresh(handle: string, author: Author): Promise<Session> {
    const { clock, database, provider } = this.#options;
    const row = await this.#find(handle, 'ACTIVE', author);
    const now = clock.now();
    if (row.expires_at <= now) throw await this.#fail(row, author, 'expired', ended());
    const owner = database.selectFrom('administrators').select(['status', 'subject', 'issuer']);
    const { status, subject, issuer } = await owner.where('id', '=', row.administrator_id).executeTakeFirstOrThrow();
    if (status !== 'ACTIVE') throw await this.#fail(row, author, 'disabled', ended());
    const refreshToken = this.#open(row);
    if (refreshToken === null || subject === null || issuer === null || !isSame(issuer, provider.options.issuer)) {
      throw await this.#fail(row, author, 'not-refreshable', ended());
    }
    if (!(await claimTurn(this.#options.database, row, refreshMilliseconds, now))) {
      throw refreshRunning();
    }
    let verified: Verified;
    try {
      verified = await provider.refresh(refreshToken, subject);
    } catch (error) {
      const { kind, reason } = asProblem(error);
      if (kind !== 'unavailable') throw await this.#fail(row, author, reason, ended());
      // The provider was unavailable, so the next request is allowed to call it without a pause.
      await this.#update(row.id, { polled_at: 0 });
      throw unavailableRefusal();
    }
    return this.#issue(row, verified, author, row.expires_at);
  }

  /**
   * Ends the sign-in to which the caller's session token belongs. @throws Refusal 409 for any other token
   */
  async end(caller: Caller, author: Author): Promise<void> {
    const { database, provider } = this.#options;
    const found = database
      .selectFrom('sign_ins')
      .selectAll()
      .where('token_id', '=', caller.tokenId ?? '');
    const row = await found.where('status', '=', 'ACTIVE').executeTakeFirst();
    if (row === undefined) {
      throw new Refusal(409, 'This token is not a session: revoke it with POST /tokens/ID/revoke', [], 'no_session');
    }
    const event = { action: 'sign-in.ended', merchantId: caller.merchantId ?? '', keyId: null, before: null } as const;
    const after = { signInId: row.id, cause: 'signed-out' };
    const current = await this.#end(row, author, () => ({ ...event, after }));
    const refreshToken = this.#open(current ?? row);
    // The sign-in has ended in the database, so a failure of the provider is ignored.
    if (refreshToken !== null) await provider.revoke(refreshToken).catch(() => undefined);
  }

  async #issue(row: Row, { claims, refreshToken }: Verified, author: Author, expiresAt: number): Promise<Session> {
    const { random, provider } = this.#options;
    const token = newToken(random);
    const handle = this.#newHandle();
    const context = this.#options;
    const id = newId('tok', context.clock.now(), random);
    const issued = await makeUnpublishedChange<Issued>(context, author, async (change) => {
      const { transaction, now } = change;
      const { rules } = provider.options;
      const account = await accountOf(change, random, claims, rules, row.status === 'PENDING' ? null : row);
      if ('result' in account) return account;
      const { administrator, events } = account;
      const end = Math.min(now + sessionMilliseconds, expiresAt);
      await transaction
        .insertInto('administrator_tokens')
        .values({
          ...{ id, administrator_id: administrator.id, kind: 'session', name: 'sign-in', digest: digestOf(token) },
          ...{ roles: JSON.stringify(administrator.roles), sources: null, created_at: now, expires_at: end },
          ...{ revoked_at: null, last_used_at: null, last_source: null },
        })
        .execute();
      const { numUpdatedRows } = await transaction
        .updateTable('sign_ins')
        .set({
          ...{ status: 'ACTIVE', digest: digestOf(handle), former_digest: row.digest, expires_at: expiresAt },
          ...{ sealed: refreshToken === null ? null : this.#seal.seal(refreshToken, row.id), polled_at: 0 },
          ...{ administrator_id: administrator.id, token_id: id, has_claimed_roles: Number(rules.decide) },
        })
        .where('id', '=', row.id)
        .where('digest', '=', row.digest)
        .where('status', '=', row.status)
        .executeTakeFirstOrThrow();
      // Another request has ended or refreshed the sign-in meanwhile. The exception rolls the new session token back.
      if (Number(numUpdatedRows) !== 1) throw await lateRefusal(transaction, row);
      if (row.token_id !== null) await revokeSession(transaction, row.token_id, now);
      const event = { merchantId: administrator.merchantId ?? '', keyId: null, before: null } as const;
      const { name, roles, issuer, subject } = administrator;
      const after = {
        signInId: row.id,
        tokenId: id,
        administratorId: administrator.id,
        name,
        roles,
        issuer,
        subject,
      };
      const isNew = row.status === 'PENDING';
      const succeeded = { ...event, action: 'sign-in.succeeded', after: { ...after, isRefresh: !isNew } } as const;
      const { name: actor, id: administratorId } = administrator;
      const provenAuthor = { ...author, actor, administratorId, proof: `session:${id}` };
      return { result: { administrator, end }, events: [...events, succeeded], provenAuthor };
    });
    if ('cause' in issued) {
      throw await this.#fail(row, author, issued.cause, row.status === 'PENDING' ? denied() : ended());
    }
    const { administrator, end } = issued;
    return {
      ...{ token, expiresAt: new Date(end).toISOString(), name: administrator.name, roles: administrator.roles },
      ...{ handle: refreshToken === null ? null : handle, signInExpiresAt: new Date(expiresAt).toISOString() },
    };
  }

  /**
   * Finds the sign-in of a handle. Each successful use replaces the handle. If a client sends a replaced handle, two
   * clients have that handle, and one of them could have stolen it. So the sign-in ends. The exception: a refresh
   * within ten seconds after the replacement gets a 409.
   */
  async #find(handle: string, status: 'PENDING' | 'ACTIVE', author: Author): Promise<Row> {
    const { database } = this.#options;
    const digest = digestOf(handle);
    const rows = database.selectFrom('sign_ins').selectAll();
    const row = await rows.where('digest', '=', digest).executeTakeFirst();
    if (row?.status === status) return row;
    const former = row ?? (await rows.where('former_digest', '=', digest).executeTakeFirst());
    // Two commands of one person can refresh at the same time. The second command gets an error and reads the token
    // file again.
    if (former?.status === 'ACTIVE' && status === 'ACTIVE' && (await isFresh(this.#options, former)))
      throw refreshRunning();
    if (former?.status === 'ACTIVE') throw await this.#fail(former, author, 'replayed-handle', ended());
    throw await this.#fail(null, author, former === undefined ? 'unknown-handle' : 'ended', ended());
  }

  /**
   * Stores the event of a failed sign-in, and ends the sign-in if it is known. Returns the error to throw. If the
   * sign-in is unknown and the IP address has too many failures, returns a 429 and stores no event.
   */
  async #fail(row: Row | null, author: Author, cause: string, refusal: Refusal): Promise<Refusal> {
    const wait = row === null ? this.#options.attempts.failed(author.source ?? '') : null;
    if (wait !== null)
      return new Refusal(429, 'Too many failed attempts from this address: try again later', [], 'too_many_attempts');
    const after = { cause, signInId: row?.id ?? null, administratorId: row?.administrator_id ?? null };
    const event = { action: 'sign-in.failed', merchantId: '', keyId: null, before: null, after } as const;
    await this.#options.attempts.record(event, author);
    if (row !== null) {
      const end = { ...event, action: 'sign-in.ended' } as const;
      await this.#end(row, author, (it) => ({ ...end, after: { ...after, administratorId: it.administrator_id } }));
    }
    return refusal;
  }

  /** Ends a sign-in, with an event if it has a session. Returns its former row; null if it had already ended. */
  #end({ id }: Row, author: Author, eventOf: (current: Row) => NewEvent): Promise<Row | null> {
    return makeUnpublishedChange(this.#options, author, async ({ transaction, now }) => {
      // The caller's row may be out of date: another request may have refreshed or ended the sign-in meanwhile.
      const current = await endSignIn(transaction, id, now);
      return { result: current, events: current?.status === 'ACTIVE' ? [eventOf(current)] : [] };
    });
  }

  async #update(id: string, values: Partial<Row>): Promise<void> {
    await this.#options.database.updateTable('sign_ins').set(values).where('id', '=', id).execute();
  }

  #open({ sealed, id }: Row): string | null {
    return sealed === null ? null : this.#seal.open(sealed, id);
  }

  #newHandle(): string {
    return this.#options.random(handleBytes).toString('base64url');
  }
}

/** Whether two issuers are the same URL, with or without a slash at the end. */
function isSame(one: string, other: string): boolean {
  const [first, second] = [one, other].map((url) => url.replace(/\/$/, ''));
  return first === second;
}
