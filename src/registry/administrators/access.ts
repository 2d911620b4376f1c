import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { Refusal } from '../../rest/refusal.js';
import { identifierForm } from '../fields.js';
import type { Author } from '../events/author.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { Attempts } from './attempts.js';
import type { Caller } from './caller.js';
import type { Credentials } from './credentials.js';
import { recordingRefusals, recordRefusal } from './recorded-refusals.js';
import { reasonRequired } from './refused-right.js';
import { authorOf, callerOf, unknownAuthor } from './request-author.js';
import { type Permission, permits } from './roles.js';
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
   * The kind of data that the route shows. For each administrator and each merchant, the first read of this kind in an
   * hour is stored as an event.
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
     * Checks the request's credential again. Resolves to true if the credential is still valid, and the caller still
     * has the route's permission and the same merchant. A stream of events calls this function repeatedly, so that a
     * revocation ends the stream.
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
  /** Permissions whose use requires a reason (`registry.reasonFor`). */
  readonly reasonFor?: ReadonlySet<string> | undefined;
}

/**
 * Makes an app reject each request whose caller lacks the permission of the requested route. A route must declare a
 * permission, or be open, that is, need no credential. Otherwise, adding the route throws. Web pages of other origins
 * cannot act for an administrator: browsers send `authorization` to another origin only after a CORS preflight, which
 * this API never allows.
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
      await admit(request, reply, options);
      const isAllowed = (): Promise<boolean> => isStillAllowed(request, options);
      request.isStillAllowed = isAllowed;
    });
    app.addHook('preHandler', async (request, reply) => {
      const { access } = request.routeOptions.config;
      // The body can arrive long after the head. Without a second check, a request could still act after the revocation
      // of its credential.
      if (access !== undefined && hasBody(request)) await admit(request, reply, options);
      const { body } = request;
      if (access?.fields === undefined || typeof body !== 'object' || body === null) return;
      for (const [field, permission] of Object.entries(access.fields)) {
        if (Object.hasOwn(body, field)) await requirePermission(request, permission, options);
      }
    });
  };
}

/** Identifies the caller of a request, and checks that the caller meets the route's requirements. @throws Refusal */
async function admit(request: FastifyRequest, reply: FastifyReply, options: AccessOptions): Promise<void> {
  request.caller = await identify(request, reply, options);
  const { is404, routeOptions } = request;
  // Unknown paths and methods have no permission to check. They get 404 or 405 later. The caller is authenticated
  // first, because these errors show which paths exist.
  if (is404 || routeOptions.config.access === undefined) return;
  await authorise(request, request.caller, routeOptions.config.access, options);
}

/** Whether the registry reads a body before it handles the request. */
function hasBody({ method, headers }: FastifyRequest): boolean {
  if (method === 'GET' || method === 'HEAD') return false;
  return headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0';
}

async function identify(request: FastifyRequest, reply: FastifyReply, options: AccessOptions): Promise<Caller> {
  const { credentials, attempts, clock } = options;
  const now = clock.now();
  const { source } = unknownAuthor(request);
  const identified = await credentials.identify(request, source ?? '', now);
  if ('caller' in identified) {
    const { caller } = identified;
    await credentials.noteUse(request, caller, now);
    // Announces in a header that the token expires soon. Tokens of sign-ins (`session:`) get no header, because they
    // always expire soon and the command line renews them.
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
  credentials.onRejected(reply, identified);
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
 * Stores the event of a failed sign-in. If the IP address has too many failures, only counts the failed sign-in.
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
      'Too many failed attempts to sign in from this address: wait, and check your token or link',
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
  const isOfOne = merchant === 'id' || merchant === 'keyId';
  if (isMember && merchant === undefined) throw await notFound(request, caller, 'Route', options);
  const of = isMember || reads !== undefined ? await merchantIn(request, merchant, options.database) : undefined;
  if (isMember && isOfOne && of !== caller.merchantId) {
    throw await notFound(request, caller, merchant === 'id' ? 'Merchant' : 'Key', options);
  }
  await requirePermission(request, permission, options);
  if (isProven === true) await requireProof(request, options);
  // A request with an unknown id reads nothing. The id can be any text, even an API key, so no event may contain it.
  const merchantId = isOfOne ? of : (caller.merchantId ?? '');
  if (reads === undefined || merchantId === undefined) return;
  options.attempts.recordRead(reads, merchantId, await recordedAuthorOf(request, options.attempts));
}

/**
 * Requires that the caller has a permission, and gave a reason if the use of this permission requires a reason. Stores
 * an event about a refused request before it throws.
 * @throws Refusal 403 without the permission, 400 without a valid reason
 */
export async function requirePermission(
  request: FastifyRequest,
  permission: Permission,
  { attempts, reasonFor }: Pick<AccessOptions, 'attempts' | 'reasonFor'>,
): Promise<void> {
  const caller = callerOf(request);
  if (!permits(caller.roles, permission)) throw await refused(request, caller, permission, attempts);
  if (reasonFor?.has(permission) !== true) return;
  const { reason } = await recordedAuthorOf(request, attempts);
  if (reason !== null) return;
  throw await recordRefusal(request, 'a reason', reasonRequired(permission), attempts);
}

/** Returns the author of a request. Stores an event before it throws because of an invalid `x-reason` or `x-actor`. */
function recordedAuthorOf(request: FastifyRequest, attempts: Attempts): Promise<Author> {
  return recordingRefusals(request, attempts, () => Promise.resolve(authorOf(request)));
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
  const message =
    'Prove your identity again: sign in at /console/sign-in?prove=yes, or with a new link from "merchant-gateway console"';
  const refusal = new Refusal(403, message, [], 'identity_not_proven');
  throw await recordRefusal(request, 'a recent proof of identity', refusal, attempts);
}

/**
 * Whether the caller signed in recently enough for routes with `isProven`. Always true for a caller with a bearer
 * token, who has no session.
 */
export function isProvenRecently({ session }: Caller, now: number): boolean {
  return session === null || (session.provenUntil !== null && now < session.provenUntil);
}

/**
 * Returns the id of the merchant that the path names, or the id of the merchant that owns the key in the path.
 * Undefined if the merchant or key does not exist, or if the path names neither.
 */
async function merchantIn(
  { params }: FastifyRequest,
  merchant: Access['merchant'],
  database: RegistryDatabase,
): Promise<string | undefined> {
  const { id, keyId } = params as { readonly id?: string; readonly keyId?: string };
  const named = merchant === 'id' ? id : merchant === 'keyId' ? keyId : undefined;
  if (named === undefined || !identifierForm.test(named)) return undefined;
  if (merchant === 'id') {
    const one = database.selectFrom('merchants').select('id').where('id', '=', named);
    return (await one.executeTakeFirst())?.id;
  }
  const key = database.selectFrom('api_keys').select('merchant_id').where('key_id', '=', named);
  return (await key.executeTakeFirst())?.merchant_id;
}

async function refused(
  request: FastifyRequest,
  caller: Caller,
  permission: Permission,
  attempts: Attempts,
): Promise<Refusal> {
  const held =
    caller.roles.length === 0 ? 'This token has no role' : `Your roles (${caller.roles.join(', ')}) do not allow this`;
  const message = `${held}: the permission ${permission} is needed`;
  const refusal = new Refusal(403, message, [], 'permission_missing', { permission });
  return recordRefusal(request, permission, refusal, attempts);
}

async function notFound(
  request: FastifyRequest,
  { merchantId }: Caller,
  what: string,
  options: AccessOptions,
): Promise<Refusal> {
  const refusal =
    what === 'Route' ? new Refusal(404, 'Route not found', [], 'route_not_found') : Refusal.notFound(what);
  return recordRefusal(request, `merchant ${merchantId ?? ''}`, refusal, options.attempts);
}
