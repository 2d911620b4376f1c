import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { Refusal } from '../../rest/refusal.js';
import { holdsApiKey } from '../fields.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { Attempts } from './attempts.js';
import type { Caller } from './caller.js';
import type { Credentials } from './credentials.js';
import { RefusedRight } from './refused-right.js';
import { authorOf, callerOf, unknownAuthor } from './request-author.js';
import { type Permission, permits } from './roles.js';
import { tokenPrefix } from './token-text.js';
import { announcedMilliseconds } from './tokens.js';

/** What a route requires of its caller. */
export interface Access {
  readonly permission: Permission;
  /** Additional permissions for fields of the body: a caller who sends such a field needs its permission. */
  readonly fields?: Readonly<Record<string, Permission>>;
  /**
   * How the route limits members (administrators of one merchant) to that merchant. If omitted, members get a 404.
   * - `id`, `keyId`: the path parameter that names the merchant or one of its keys;
   * - `list`: the handler returns only records of the caller's `merchantId`;
   * - `own`: the route concerns only the caller.
   */
  readonly merchant?: 'id' | 'keyId' | 'list' | 'own';
  /** Whether the console requires a recent sign-in, because the route shows a secret, gives rights or moves money. */
  readonly isProven?: true;
  /**
   * The kind of data that the route shows. An administrator's first read of this kind in each hour is stored as an
   * event, separately for each merchant.
   */
  readonly reads?: 'keys' | 'allowlists' | 'members' | 'usage';
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /**
     * What the route requires of its caller. Each route must set this, except open ones, whose callers need no
     * credential.
     */
    access?: Access;
  }
  interface FastifyRequest {
    /** The authenticated caller. Null only in a route that is open (needs no credential). */
    caller: Caller | null;
    /**
     * Checks the request's credential again. Resolves to true if the credential is valid, belongs to the same merchant
     * and has the route's permission. An open stream of events calls this repeatedly, so that a revocation ends the
     * stream.
     */
    isStillAllowed: () => Promise<boolean>;
  }
}

/** Dependencies of `requireAccess`. */
export interface AccessOptions {
  readonly database: RegistryDatabase;
  readonly credentials: Credentials;
  readonly attempts: Attempts;
  readonly clock: { now(): number };
  /** Permissions whose use requires a reason (`registry.reasons`). */
  readonly reasonFor?: ReadonlySet<string> | undefined;
}

/**
 * Makes an app accept only requests whose caller has the permission that their route requires. Adding a route throws if
 * the route is not open (needs a credential) and declares no permission. Web pages of other origins cannot act for an
 * administrator: browsers send `authorization` to another origin only after a CORS preflight, which this API never
 * allows.
 */
export function requireAccess(options: AccessOptions): (app: FastifyInstance) => void {
  return (app) => {
    app.decorateRequest('caller', null);
    app.decorateRequest('isStillAllowed', () => Promise.resolve(false));
    app.addHook('onRoute', ({ method, url, config }) => {
      if (config?.isOpen !== true && config?.access === undefined) {
        throw new Error(`the route ${String(method)} ${url} declares no permission`);
      }
    });
    app.addHook('onRequest', async (request, reply) => {
      reply.header('x-request-id', request.id);
      if (request.routeOptions.config.isOpen === true) return;
      request.caller = await identify(request, reply, options);
      const { is404, routeOptions } = request;
      // Unknown paths and methods have no permission to check. They get 404 or 405 later. The caller is authenticated
      // first, because these errors show which paths exist.
      if (is404 || routeOptions.config.access === undefined) return;
      await authorise(request, request.caller, routeOptions.config.access, options);
      const isAllowed = (): Promise<boolean> => isStillAllowed(request, options);
      request.isStillAllowed = isAllowed;
    });
    app.addHook('preHandler', async (request) => {
      const { access } = request.routeOptions.config;
      const { caller, body } = request;
      if (access?.fields === undefined || caller === null || typeof body !== 'object' || body === null) return;
      for (const [field, permission] of Object.entries(access.fields)) {
        if (Object.hasOwn(body, field) && !permits(caller.roles, permission)) {
          throw await refused(request, caller, permission, options.attempts);
        }
      }
    });
  };
}

async function identify(request: FastifyRequest, reply: FastifyReply, options: AccessOptions): Promise<Caller> {
  const { credentials, attempts, clock } = options;
  const now = clock.now();
  const { source } = unknownAuthor(request);
  const identified = await credentials.identify(request, source ?? '', now);
  if ('caller' in identified) {
    const { caller } = identified;
    await credentials.noteUse(request, caller, now);
    // Announces that the token expires soon. Omits tokens from sign-ins (`session:`), because these always expire soon
    // and the command line renews them.
    if (
      caller.expiresAt !== null &&
      caller.proof.startsWith('token:') &&
      caller.expiresAt - now < announcedMilliseconds
    ) {
      reply.header('x-token-expires-at', new Date(caller.expiresAt).toISOString());
    }
    return caller;
  }
  const { rejection, credential } = identified;
  credentials.onRejected(reply);
  if (rejection === 'absent') throw credentials.refusalOf(rejection, request);
  await recordFailure({ cause: rejection, ...credential }, request, reply, attempts);
  throw credentials.refusalOf(rejection, request);
}

async function isStillAllowed(request: FastifyRequest, { credentials, clock }: AccessOptions): Promise<boolean> {
  const identified = await credentials.identify(request, unknownAuthor(request).source ?? '', clock.now());
  const { access } = request.routeOptions.config;
  if (!('caller' in identified) || access === undefined) return false;
  return (
    identified.caller.merchantId === callerOf(request).merchantId && permits(identified.caller.roles, access.permission)
  );
}

/**
 * Stores the event of a failed sign-in. If the client's IP address has too many failed sign-ins, only counts this one.
 * @throws Refusal 429 if the client's IP address has too many failed sign-ins
 */
export async function recordFailure(
  after: { readonly cause: string } & Readonly<Record<string, string | null>>,
  request: FastifyRequest,
  reply: FastifyReply,
  attempts: Attempts,
): Promise<void> {
  const author = unknownAuthor(request);
  const wait = attempts.failed(author.source ?? '');
  if (wait !== null) {
    attempts.refused('too_many_attempts', author);
    reply.header('retry-after', wait);
    throw new Refusal(
      429,
      'Too many failed attempts from this address: wait, and check the token',
      [],
      'too_many_attempts',
    );
  }
  await attempts.record({ action: 'sign-in.failed', merchantId: '', keyId: null, before: null, after }, author);
}

async function authorise(
  request: FastifyRequest,
  caller: Caller,
  access: Access,
  options: AccessOptions,
): Promise<void> {
  const { permission, merchant, reads, isProven } = access;
  const isMember = caller.merchantId !== null;
  if (isMember && merchant === undefined) throw await notFound(request, caller, 'Route', options);
  const of = isMember || reads !== undefined ? await merchantIn(request, merchant, options.database) : undefined;
  if (isMember && (merchant === 'id' || merchant === 'keyId') && of !== caller.merchantId) {
    throw await notFound(request, caller, merchant === 'id' ? 'Merchant' : 'Key', options);
  }
  await requirePermission(request, permission, options);
  if (isProven === true) await requireProof(request, options);
  if (reads !== undefined) {
    const merchantId = of ?? caller.merchantId ?? '';
    options.attempts.recordRead(reads, merchantId, authorOf(request));
  }
}

/**
 * Requires that the caller has a permission, and gave a reason if the use of this permission requires one. Stores an
 * event about a refused request before it throws.
 * @throws Refusal 403 or 400
 */
export async function requirePermission(
  request: FastifyRequest,
  permission: Permission,
  { attempts, reasonFor }: Pick<AccessOptions, 'attempts' | 'reasonFor'>,
): Promise<void> {
  const caller = callerOf(request);
  if (!permits(caller.roles, permission)) throw await refused(request, caller, permission, attempts);
  if (reasonFor?.has(permission) !== true || authorOf(request).reason !== null) return;
  await recordRefusal(request, 'a reason', attempts);
  const message = `A reason is required for ${permission}: send the header x-reason, or use --reason`;
  throw new Refusal(400, message, [], 'reason_required');
}

/**
 * Requires that a person who uses the console signed in within the last few minutes. Otherwise an unattended browser or
 * a stolen session would be enough to get keys. Stores an event about a refused request before it throws.
 * @throws Refusal 403
 */
export async function requireProof(
  request: FastifyRequest,
  { attempts, clock }: Pick<AccessOptions, 'attempts' | 'clock'>,
): Promise<void> {
  if (isProvenRecently(callerOf(request), clock.now())) return;
  await recordRefusal(request, 'a recent proof of identity', attempts);
  throw new Refusal(
    403,
    'Prove your identity again: sign in at /console/sign-in?prove=yes, or with a new link from "merchant-gateway console"',
    [],
    'identity_not_proven',
  );
}

/**
 * Whether the caller signed in recently enough for sensitive routes. A request with a bearer token always counts as
 * recent: it has no session.
 */
export function isProvenRecently({ session }: Caller, now: number): boolean {
  return session === null || (session.provenUntil !== null && now < session.provenUntil);
}

/**
 * Returns the id of the merchant that the path names, or the id of the merchant that owns the key in the path.
 * Undefined if the key does not exist, or if the path names neither a merchant nor a key.
 */
async function merchantIn(
  { params }: FastifyRequest,
  merchant: Access['merchant'],
  database: RegistryDatabase,
): Promise<string | undefined> {
  const { id, keyId } = params as { readonly id?: string; readonly keyId?: string };
  if (merchant === 'id') return id;
  if (merchant !== 'keyId' || keyId === undefined) return undefined;
  const key = database.selectFrom('api_keys').select('merchant_id').where('key_id', '=', keyId);
  return (await key.executeTakeFirst())?.merchant_id;
}

async function refused(
  request: FastifyRequest,
  caller: Caller,
  permission: Permission,
  attempts: Attempts,
): Promise<Refusal> {
  await recordRefusal(request, permission, attempts);
  const held =
    caller.roles.length === 0 ? 'This token has no role' : `Your roles (${caller.roles.join(', ')}) do not allow this`;
  return new Refusal(403, `${held}: the permission ${permission} is needed`, [], 'permission_missing', { permission });
}

async function notFound(
  request: FastifyRequest,
  { merchantId }: Caller,
  what: string,
  options: AccessOptions,
): Promise<Refusal> {
  await recordRefusal(request, `merchant ${merchantId ?? ''}`, options.attempts);
  return what === 'Route' ? new Refusal(404, 'Route not found', [], 'route_not_found') : Refusal.notFound(what);
}

/**
 * Stores the event of a refused request.
 * @param needs what the caller lacks, such as a permission
 */
async function recordRefusal(request: FastifyRequest, needs: string, attempts: Attempts): Promise<void> {
  const { method, routeOptions, params } = request;
  const given = JSON.stringify(params);
  const after = {
    method,
    route: routeOptions.url ?? '',
    params: holdsApiKey(given) || given.includes(tokenPrefix) ? null : params,
    needs,
  };
  await attempts.record(
    { action: 'attempt.refused', merchantId: '', keyId: null, before: null, after },
    authorOf(request),
  );
}

/** Runs an operation. If it throws a RefusedRight (the caller lacks a right), stores an event before it rethrows. */
export async function recordingRefusals<Result>(
  request: FastifyRequest,
  attempts: Attempts,
  act: () => Promise<Result>,
): Promise<Result> {
  try {
    return await act();
  } catch (error) {
    if (error instanceof RefusedRight) await recordRefusal(request, error.needs, attempts);
    throw error;
  }
}
