import type { FastifyInstance, FastifyRequest } from 'fastify';
import { actorOf } from '../../rest/actor.js';
import { bearerTokenIn, tokenCheck } from '../../rest/bearer-token.js';
import { reasonIn } from '../../rest/reason.js';
import { Refusal } from '../../rest/refusal.js';
import { type Funding, type WalletPermission, walletPermissions } from '../../rest/services-token.js';
import type { NewOperatorEvent } from './operator-events.js';
import type { Operator, ServicesTokenVerifier } from './services-token-verifier.js';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** What the route requires of the operator. Required for each route of the operators' API that is not open. */
    permission?: WalletPermission;
  }
  interface FastifyRequest {
    /** Set before the handler of a route that is not open. */
    operator: Operator | null;
  }
}

/** Credentials that the operators' API accepts. */
interface OperatorCredentials {
  /** The shared token; null accepts none. */
  readonly token: string | null;
  /** Null accepts no administrators of the registry. */
  readonly administrators: ServicesTokenVerifier | null;
}

/** Who has the shared token may do everything. */
const sharedOperator: Operator = {
  ...{ name: 'bootstrap', administratorId: null, proof: 'bootstrap' },
  ...{ permissions: walletPermissions, reasonFor: [], fundingLimits: null, approved: null },
};

/**
 * Makes an app accept only requests whose operator has the permission that their route requires. A route without a
 * declared permission prevents the start. Browsers send `authorization` to another site only after a CORS preflight,
 * which this API never allows. So no web page can act for an operator.
 */
export function requireOperator({ token, administrators }: OperatorCredentials): (app: FastifyInstance) => void {
  const shared = token === null ? null : tokenCheck(token);
  return (app) => {
    app.decorateRequest('operator', null);
    app.addHook('onRoute', ({ method, url, config }) => {
      if (config?.isOpen !== true && config?.allow === undefined && config?.permission === undefined) {
        throw new Error(`the route ${String(method)} ${url} declares no permission`);
      }
    });
    app.addHook('onRequest', async (request, reply) => {
      reply.header('x-request-id', request.id);
      const { is404, routeOptions } = request;
      if (routeOptions.config.isOpen === true) return;
      const given = bearerTokenIn(request.headers.authorization);
      const operator =
        given === null ? null : shared?.(given) === true ? sharedOperator : ((await administrators?.(given)) ?? null);
      if (operator === null) {
        reply.header('www-authenticate', 'Bearer');
        throw new Refusal(401, given === null ? 'A bearer token is required' : 'Invalid token');
      }
      request.operator = operator;
      // Unknown paths and methods get their own response, and only from here on: they reveal which paths exist.
      if (!is404 && routeOptions.config.permission !== undefined) authorise(request, routeOptions.config.permission);
    });
  };
}

/** Returns the operator of a request. */
function operatorOf({ operator }: FastifyRequest): Operator {
  if (operator === null) throw new Error('the route is open, so its requests have no operator');
  return operator;
}

/**
 * Returns the name that the ledger stores for a change: that of the administrator, or with a shared token the name that
 * the client claims.
 * @throws Refusal 400 for an invalid claimed name
 */
export function ledgerNameOf(request: FastifyRequest): string {
  const { name, proof } = operatorOf(request);
  return proof === 'bootstrap' ? actorOf(request) : name;
}

/** The author of an event: who made the request, how that was proven, from where and why. */
export type EventAuthor = Pick<
  NewOperatorEvent,
  'id' | 'actor' | 'administratorId' | 'proof' | 'claimed' | 'source' | 'reason'
>;

/**
 * Returns the author of the event of a request.
 * @param reason the reason in the body; null without one
 * @throws Refusal 400 for an invalid claimed name
 */
export function eventAuthorOf(request: FastifyRequest, reason: string | null): EventAuthor {
  const { name, administratorId, proof } = operatorOf(request);
  const { 'x-actor': claimed = '', 'x-reason': why } = request.headers;
  return {
    ...{ id: request.id, actor: name, administratorId, proof },
    claimed: proof === 'bootstrap' && claimed !== '' ? actorOf(request) : null,
    source: request.socket.remoteAddress?.replace(/^::ffff:/i, '').replace(/%.*$/, '') ?? null,
    reason: reason ?? reasonIn(why),
  };
}

/**
 * Requires that a funding is within the limit of its currency, or is the one that another administrator has approved.
 * @throws Refusal 403 `approval_required`
 */
export function requireApproval(request: FastifyRequest, funding: Funding): void {
  const { fundingLimits, approved } = operatorOf(request);
  const limit = fundingLimits === null ? Infinity : (fundingLimits[funding.currency] ?? 0);
  const names = ['walletId', 'environment', 'currency', 'amount', 'reference'] as const;
  if (funding.amount <= limit || (approved !== null && names.every((name) => approved[name] === funding[name]))) return;
  const message =
    `Funding above ${limit} ${funding.currency} needs the approval of another administrator: request it from the ` +
    'registry (POST /approvals), and send the services token for the approved request';
  throw new Refusal(403, message, [], 'approval_required');
}

function authorise(request: FastifyRequest, permission: WalletPermission): void {
  const { name, permissions, reasonFor } = operatorOf(request);
  if (!permissions.includes(permission)) {
    const message = `${name} may not do this: it needs ${permission}`;
    throw new Refusal(403, message, [], 'permission_missing', { permission });
  }
  const reason = reasonIn(request.headers['x-reason']);
  // Each movement has a reason in its body.
  if (permission !== 'wallets:fund' && reasonFor.includes(permission) && reason === null)
    throw new Refusal(400, `A reason is required for ${permission}: send x-reason (--reason)`, [], 'reason_required');
}
