import { success } from '../../rest/envelope.js';
import { Refusal } from '../../rest/refusal.js';
import { walletPermissions } from '../../rest/services-token.js';
import { isProvenRecently, requireProof } from '../administrators/access.js';
import type { Attempts } from '../administrators/attempts.js';
import { callerOf } from '../administrators/request-author.js';
import { permits } from '../administrators/roles.js';
import { newId } from '../registry-context.js';
import type { Routes } from '../routes.js';
import { approvedFunding } from '../approvals/funding.js';
import { rulesIn } from '../approvals/guard.js';
import { servicesTokenQuery, servicesTokenSchema } from './schema.js';
import type { ServicesTokenKey } from './services-tokens.js';

/** Dependencies of the route of services tokens. */
export interface ServicesTokenOptions {
  /** Null: the registry signs none (`registry.servicesToken`). */
  readonly key: ServicesTokenKey | null;
  /** Permissions whose use requires a reason. */
  readonly reasonFor: ReadonlySet<string>;
  readonly attempts: Attempts;
}

/** Creates the route that signs tokens for the operators' API of the services. */
export function servicesTokenRoutes({ key, reasonFor, attempts }: ServicesTokenOptions): Routes {
  return (app, { database, clock, random }) => {
    app.post(
      '/services-tokens',
      {
        schema: { querystring: servicesTokenQuery },
        config: {
          operation: {
            summary:
              "Sign a token of at most 5 minutes for the services' operators' API, with the caller's permissions",
            status: 201,
            isRead: true,
            data: servicesTokenSchema,
          },
          access: { permission: 'wallets:read' },
        },
      },
      async (request, reply) => {
        if (key === null) throw noKey();
        // Import this module only here: it loads jose, which registries without such tokens do not need.
        const { signServicesToken } = await import('./services-tokens.js');
        const caller = callerOf(request);
        const now = clock.now();
        const { approvalId } = request.query;
        if (approvalId !== undefined) await requireProof(request, { attempts, clock });
        const permissions = walletPermissions.filter(
          (permission) =>
            permits(caller.roles, permission) && (permission !== 'wallets:fund' || isProvenRecently(caller, now)),
        );
        const approved = approvalId === undefined ? null : await approvedFunding(database, caller, approvalId, now);
        const { fundingAbove } = await rulesIn(database);
        const signed = await signServicesToken(key, {
          ...{ caller, permissions, now, approved, fundingLimits: fundingAbove },
          reasonFor: permissions.filter((permission) => reasonFor.has(permission)),
          id: newId('jti', now, random),
        });
        reply.code(201);
        return success('Token signed', { ...signed, permissions });
      },
    );
  };
}

function noKey(): Refusal {
  const message =
    'This registry signs no tokens for the services: set registry.servicesToken and services.operators.registryKeys';
  return new Refusal(404, message, [], 'services_tokens_off');
}
