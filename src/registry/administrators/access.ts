import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { actorForm } from '../../rest/actor.js';
import { reasonIn } from '../../rest/reason.js';
import { Refusal } from '../../rest/refusal.js';
import type { Author } from '../events/author.js';
import { holdsApiKey } from '../fields.js';
import { clientAddressOf } from '../own-host.js';
import type { RegistryDatabase } from '../registry-database.js';
import { tokenPrefix } from './token-text.js';
import { announcedMilliseconds } from './tokens.js';
import type { Attempts } from './attempts.js';
import type { Caller, Identities } from './caller.js';
import { type Permission, permits } from './roles.js';

/** What a route requires of its caller. */
export interface Access {
  readonly permission: Permission;
  /** Permissions that single fields of the body require besides. */
  readonly fields?: Readonly<Record<string, Permission>>;
  /**
   * How the route limits members to their own merchant: `id` and `keyId` name the path parameter, `list` means that the
   * handler filters by `merchantId` of the caller, `own` that the route concerns only the caller. Omitted: members of a
   * merchant get a 404.
   */
  readonly merchant?: 'id' | 'keyId' | 'list' | 'own';
  /** What the route shows. The first read in each hour by one administrator is an event. */
  readonly reads?: 'keys' | 'allowlists' | 'members';
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Required for each route that is not open. */
    access?: Access;
  }
  interface FastifyRequest {
    /** Set before the handler of a route that is not open. */
    caller: Caller | null;
  }
}

/** Dependencies of the check of requests. */
export interface AccessOptions {
  readonly database: RegistryDatabase;
  readonly identities: Identities;
  readonly attempts: Attempts;
  readonly clock: { now(): number };
  /** Permissions whose use requires a reason (`registry.reasons`). */
  readonly reasonFor?: ReadonlySet<string> | undefined;
}

const headerForm = /^Bearer +(?<token>[A-Za-z0-9._~+/=-]{1,4096})$/i;

/**
 * Makes an app accept only requests whose caller has the permission that their route requires. A route without a
 * declared permission prevents the start. Browsers send `authorization` to another site only after a CORS preflight,
 * which this API never allows. So no web page can act for an administrator.
 */
export function requireAccess(options: AccessOptions): (app: FastifyInstance) => void {
  return (app) => {
    app.decorateRequest('caller', null);
    app.addHook('onRoute', ({ method, url, config }) => {
      if (config?.isOpen !== true && config?.allow === undefined && config?.access === undefined) {
        throw new Error(`the route ${String(method)} ${url} declares no permission`);
      }
    });
    app.addHook('onRequest', async (request, reply) => {
      reply.header('x-request-id', request.id);
      if (request.routeOptions.config.isOpen === true) return;
      request.caller = await identify(request, reply, options);
      const { is404, routeOptions } = request;
      // Unknown paths and methods get their own response, and only from here on: they reveal which paths exist.
      if (is404 || routeOptions.config.access === undefined) return;
      await authorise(request, request.caller, routeOptions.config.access, options);
    });
    app.addHook('preHandler', async (request) => {
      const { access } = request.routeOptions.config;
      const { caller, body } = request;
      if (access?.fields === undefined || caller === null || typeof body !== 'object' || body === null) return;
      for (const [field, permission] of Object.entries(access.fields)) {
        if (Object.hasOwn(body, field) && !permits(caller.roles, permission)) {
          throw await refused(request, caller, permission, options);
        }
      }
    });
  };
}

/** Returns the author of events for a request. */
export function authorOf(request: FastifyRequest): Author {
  const { caller, headers, id } = request;
  if (caller === null) throw new Error('the route is open, so its requests have no author');
  return {
    ...requestOf(request),
    ...{ requestId: id, reason: reasonIn(headers['x-reason']) },
    ...identityOf(caller, headers),
  };
}

/** Returns the author of an attempt whose caller is unknown. */
export function unknownAuthor(request: FastifyRequest): Author {
  return { ...anonymous, ...requestOf(request), requestId: request.id };
}

/** Returns the caller of a request. */
export function callerOf({ caller }: FastifyRequest): Caller {
  if (caller === null) throw new Error('the route is open, so its requests have no caller');
  return caller;
}

function identityOf(caller: Caller, headers: FastifyRequest['headers']) {
  const { name, administratorId, proof } = caller;
  return { actor: name, administratorId, proof, claimed: proof === 'bootstrap' ? claimedIn(headers['x-actor']) : null };
}

function requestOf(request: FastifyRequest): Pick<Author, 'source'> {
  return { source: clientAddressOf(request)?.text ?? null };
}

/**
 * Returns the name that a client with the shared token claims. Nothing proves it.
 * @throws Refusal 400 for an invalid name
 */
function claimedIn(name: string | readonly string[] | undefined): string | null {
  if (name === undefined || name === '') return null;
  // Node joins repeated headers with a comma, which `actorForm` rejects.
  if (typeof name === 'string' && actorForm.test(name)) return name;
  throw new Refusal(
    400,
    'x-actor must be a name of 1 to 64 letters, digits and . _ @ : + -, and must not contain an API key',
  );
}

async function identify(request: FastifyRequest, reply: FastifyReply, options: AccessOptions): Promise<Caller> {
  const { identities, attempts, clock } = options;
  const now = clock.now();
  const { source } = requestOf(request);
  const token = headerForm.exec(request.headers.authorization ?? '')?.groups?.token;
  const identified =
    token === undefined
      ? { rejection: absenceIn(request), tokenId: null }
      : await identities.identify(token, source ?? '', now);
  if ('caller' in identified) {
    const { caller } = identified;
    // The tokens of sign-ins always end soon, and commands refresh them.
    if (
      caller.expiresAt !== null &&
      caller.proof.startsWith('token:') &&
      caller.expiresAt - now < announcedMilliseconds
    ) {
      reply.header('x-token-expires-at', new Date(caller.expiresAt).toISOString());
    }
    return caller;
  }
  const { rejection, tokenId } = identified;
  reply.header('www-authenticate', 'Bearer');
  if (rejection === 'absent') throw new Refusal(401, absentMessage);
  const author = unknownAuthor(request);
  const wait = attempts.failed(source ?? '');
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
  const after = { cause: rejection, tokenId };
  await attempts.record({ action: 'sign-in.failed', merchantId: '', keyId: null, before: null, after }, author);
  if (rejection === 'misplaced') {
    throw new Refusal(
      401,
      `${absentMessage} in the authorization header. Replace the token, which others may have read`,
    );
  }
  if (token === undefined) throw new Refusal(401, absentMessage);
  // The same message for each cause, so that nobody learns which tokens exist.
  throw new Refusal(401, 'Invalid token');
}

const absentMessage = 'A bearer token is required';

/**
 * Why a request has no bearer token: it has no credential at all, another one than a bearer token, or a token in a place
 * that logs and other servers read.
 */
function absenceIn({ url, headers }: FastifyRequest): 'absent' | 'malformed' | 'misplaced' {
  const { authorization = '', cookie = '', 'proxy-authorization': proxy = '', 'x-api-key': key = '' } = headers;
  if ([url, cookie, proxy, ...[key].flat()].some((text) => text.includes(tokenPrefix))) return 'misplaced';
  return authorization === '' ? 'absent' : 'malformed';
}

/** The author of an attempt whose caller is unknown. */
const anonymous: Author = {
  ...{ actor: 'unknown', administratorId: null, proof: 'unproven', claimed: null },
  ...{ source: null, requestId: null, reason: null },
};

async function authorise(
  request: FastifyRequest,
  caller: Caller,
  access: Access,
  options: AccessOptions,
): Promise<void> {
  const { permission, merchant, reads } = access;
  const isMember = caller.merchantId !== null;
  if (isMember && merchant === undefined) throw await notFound(request, caller, 'Route', options);
  const of = isMember || reads !== undefined ? await merchantIn(request, merchant, options.database) : undefined;
  if (isMember && (merchant === 'id' || merchant === 'keyId') && of !== caller.merchantId) {
    throw await notFound(request, caller, merchant === 'id' ? 'Merchant' : 'Key', options);
  }
  if (!permits(caller.roles, permission)) throw await refused(request, caller, permission, options);
  if (options.reasonFor?.has(permission) === true && authorOf(request).reason === null) {
    throw new Refusal(400, `A reason is required for ${permission}: send x-reason (--reason)`, [], 'reason_required');
  }
  if (reads !== undefined) {
    const merchantId = of ?? caller.merchantId ?? '';
    options.attempts.recordRead(reads, merchantId, authorOf(request));
  }
}

/** Returns the merchant that a request concerns; undefined if it does not exist or the route names no merchant. */
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
  options: AccessOptions,
): Promise<Refusal> {
  await recordRefusal(request, permission, options.attempts);
  const held =
    caller.roles.length === 0 ? 'This token has no role' : `The role ${caller.roles.join(', ')} may not do this`;
  return new Refusal(403, `${held}: it needs ${permission}`, [], 'permission_missing', { permission });
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
 * Stores the event of an attempt that was refused.
 * @param needs what the caller lacks, such as a permission
 */
export async function recordRefusal(request: FastifyRequest, needs: string, attempts: Attempts): Promise<void> {
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
