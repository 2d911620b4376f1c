import type { FastifyInstance, FastifyRequest } from 'fastify';
import { actorIn } from '../../rest/actor.js';
import { bearerTokenIn, isFrom, tokenCheck } from '../../rest/bearer-token.js';
import { reasonIn } from '../../rest/reason.js';
import { Refusal } from '../../rest/refusal.js';
import { plainAddress } from '../../rest/counted-source.js';
import { type Funding, type WalletPermission, walletPermissions } from '../../rest/services-token.js';
import type { OperatorAttempts, SignInFailure } from './operator-attempts.js';
import type { EventAuthor } from './operator-events.js';
import type { Operator, ServicesTokenVerifier } from './services-token-verifier.js';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The permission that the route requires of the operator. Must be set for each route without `isOpen`. */
    permission?: WalletPermission;
  }
  interface FastifyRequest {
    /** The authenticated operator, set before the handler runs; null on a route that needs no authentication. */
    operator: Operator | null;
  }
}

/** Options of the authentication of operators. */
interface OperatorAccess {
  /** The bearer token that all operators share; null: there is no shared token. */
  readonly token: string | null;
  /** The verifier of tokens of the registry's administrators; null: no such token is accepted. */
  readonly administrators: ServicesTokenVerifier | null;
  /** The counter of refused attempts; null: refused attempts are not counted. */
  readonly attempts: OperatorAttempts | null;
}

/** The operator of a request with the shared token. This operator has every permission. */
const sharedOperator: Operator = {
  ...{ name: 'bootstrap', administratorId: null, proof: 'bootstrap' },
  ...{ permissions: walletPermissions, reasonFor: [], fundingLimits: null, approved: null, sources: null },
};

/**
 * Makes an app accept only requests of operators who have the permission that the route requires. Open routes need no
 * operator. The start fails if a route is not open and declares no permission. Browsers send `authorization` to another
 * site only after a CORS preflight, which this API never allows. So no web page can act for an operator.
 */
export function requireOperator({ token, administrators, attempts }: OperatorAccess): (app: FastifyInstance) => void {
  const shared = token === null ? null : tokenCheck(token);
  return (app) => {
    app.decorateRequest('operator', null);
    app.addHook('onRoute', ({ method, url, config }) => {
      if (config?.isOpen !== true && config?.permission === undefined) {
        throw new Error(`the route ${String(method)} ${url} declares no permission`);
      }
    });
    app.addHook('onRequest', async (request, reply) => {
      reply.header('x-request-id', request.id);
      const { is404, routeOptions, headers } = request;
      const source = sourceOf(request);
      const fail = (cause: SignInFailure, refusal: Refusal): Refusal => {
        attempts?.signInFailed({ id: request.id, source }, cause);
        return refusal;
      };
      // This API could be configured by mistake as an upstream of a gateway. So requests that came through a gateway
      // are rejected. A gateway sets `x-merchant-id` on every request that it forwards.
      if (headers['x-merchant-id'] !== undefined || headers['x-gateway-assertion'] !== undefined)
        throw fail('forwarded', new Refusal(403, 'Forbidden', [], 'forwarded'));
      if (routeOptions.config.isOpen === true) return;
      const given = bearerTokenIn(headers.authorization);
      const operator =
        given === null ? null : shared?.(given) === true ? sharedOperator : ((await administrators?.(given)) ?? null);
      const failure = failureOf(headers.authorization, given, operator, source);
      if (operator === null || failure !== null) {
        reply.header('www-authenticate', 'Bearer');
        // A rejected token always gets the same message, so that a client cannot find out which tokens exist.
        const refusal = new Refusal(401, given === null ? 'A bearer token is required' : 'Invalid token');
        throw failure === null || failure === 'absent' ? refusal : fail(failure, refusal);
      }
      request.operator = operator;
      // For an unknown path or method, a later hook sends the 404 or 405. This response reveals which paths exist, so
      // that hook runs only for authenticated operators.
      if (!is404 && routeOptions.config.permission !== undefined)
        authorise(request, routeOptions.config.permission, attempts);
    });
  };
}

/** Returns why a request is rejected: no valid token, or a client address that is not allowed. Null if accepted. */
function failureOf(
  header: string | undefined,
  given: string | null,
  operator: Operator | null,
  source: string | null,
): SignInFailure | 'absent' | null {
  if (header === undefined || header === '') return 'absent';
  if (given === null) return 'malformed';
  if (operator === null) return 'invalid';
  return isFrom(operator.sources, source) ? null : 'source';
}

/** Returns the address of a request's connection. For a request from the console, it is the address of the registry. */
function sourceOf({ socket }: FastifyRequest): string | null {
  return plainAddress(socket.remoteAddress);
}

/** Returns the address of an operator. If the registry relayed the request, this is the address in the signed token. */
function clientAddressOf(request: FastifyRequest): string | null {
  const { clientAddress = sourceOf(request) } = operatorOf(request);
  return clientAddress;
}

/** Returns the operator of a request. */
function operatorOf({ operator }: FastifyRequest): Operator {
  if (operator === null) throw new Error('the route is open, so its requests have no operator');
  return operator;
}

/**
 * Returns the name that the ledger stores for a change. This is the administrator's name. With the shared token, it is
 * the name in the header `x-actor`, or `admin` if the header is missing or empty.
 * @throws Refusal 400 for an invalid `x-actor`
 */
export function ledgerNameOf(request: FastifyRequest): string {
  const { name, proof } = operatorOf(request);
  return proof === 'bootstrap' ? (actorIn(request) ?? 'admin') : name;
}

/**
 * Returns the author for the event that a request causes.
 * @param reason the reason in the body; null: the reason is taken from the header `x-reason`
 * @throws Refusal 400 for an invalid `x-actor` or `x-reason`
 */
export function eventAuthorOf(request: FastifyRequest, reason: string | null): EventAuthor {
  const { name, administratorId, proof } = operatorOf(request);
  const { 'x-reason': why } = request.headers;
  return {
    ...{ id: request.id, actor: name, administratorId, proof },
    claimed: proof === 'bootstrap' ? actorIn(request) : null,
    source: clientAddressOf(request),
    reason: reason ?? reasonIn(why),
  };
}

/**
 * Rejects the funding of a wallet if the amount exceeds the operator's limit for the currency, unless another
 * administrator has approved exactly this funding.
 * @throws Refusal 403 `approval_required`
 */
export function requireApproval(request: FastifyRequest, funding: Funding, attempts: OperatorAttempts | null): void {
  const { fundingLimits, approved } = operatorOf(request);
  const limit = fundingLimits === null ? Infinity : (fundingLimits[funding.currency] ?? 0);
  const names = ['walletId', 'environment', 'currency', 'amount', 'reference'] as const;
  if (funding.amount <= limit || (approved !== null && names.every((name) => approved[name] === funding[name]))) return;
  countRefusal(request, 'approval', attempts);
  const message =
    `Funding above ${limit} minor units of ${funding.currency} needs the approval of another administrator. Request it ` +
    'from the registry (POST /approvals). Then repeat this request with a services token for the approval (POST /services-tokens?approvalId=ID)';
  throw new Refusal(403, message, [], 'approval_required');
}

/** Counts a request of an operator who lacks a permission, an approval or a reason. */
function countRefusal(
  request: FastifyRequest,
  needs: WalletPermission | 'approval' | 'reason',
  attempts: OperatorAttempts | null,
): void {
  const { name, administratorId, proof } = operatorOf(request);
  const author = { id: request.id, actor: name, administratorId, proof, source: clientAddressOf(request) };
  const { method, routeOptions } = request;
  attempts?.refused({ ...author, claimed: null, reason: null }, { method, route: routeOptions.url ?? '', needs });
}

function authorise(request: FastifyRequest, permission: WalletPermission, attempts: OperatorAttempts | null): void {
  const { name, permissions, reasonFor } = operatorOf(request);
  if (!permissions.includes(permission)) {
    countRefusal(request, permission, attempts);
    const message = `${name} lacks the permission ${permission}, which this request needs`;
    throw new Refusal(403, message, [], 'permission_missing', { permission });
  }
  const reason = reasonIn(request.headers['x-reason']);
  // No reason header is required for a movement, because its body always contains a reason.
  if (permission === 'wallets:fund' || !reasonFor.includes(permission) || reason !== null) return;
  countRefusal(request, 'reason', attempts);
  throw new Refusal(
    400,
    `A reason is required for ${permission}: send the header x-reason, or use --reason`,
    [],
    'reason_required',
  );
}
