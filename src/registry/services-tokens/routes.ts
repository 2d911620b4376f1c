import { success } from '../../rest/envelope.js';
import { Refusal } from '../../rest/refusal.js';
import { requireProof } from '../administrators/access.js';
import type { Attempts } from '../administrators/attempts.js';
import { callerOf } from '../administrators/request-author.js';
import type { Routes } from '../routes.js';
import { servicesTokenQuery, servicesTokenSchema } from './schema.js';
import type { ServicesTokenKey } from './services-tokens.js';
import { servicesTokenFor } from './token-for.js';

/** Dependencies of `servicesTokenRoutes`. */
export interface ServicesTokenOptions {
  /** The signing key; null if `registry.servicesToken` is not configured. The registry then signs no tokens. */
  readonly key: ServicesTokenKey | null;
  /** Permissions whose use requires a reason (`x-reason`). */
  readonly reasonFor: ReadonlySet<string>;
  readonly attempts: Attempts;
}

/** Adds the route that signs tokens for the operators' API of the services. */
export function servicesTokenRoutes({ key, reasonFor, attempts }: ServicesTokenOptions): Routes {
  return (app, context) => {
    app.post(
      '/services-tokens',
      {
        schema: { querystring: servicesTokenQuery },
        config: {
          operation: {
            summary:
              "Sign a token for the operators' API of the services, with the caller's permissions, valid for at most 5 minutes",
            status: 201,
            isRead: true,
            data: servicesTokenSchema,
          },
          access: { permission: 'wallets:read' },
        },
      },
      async (request, reply) => {
        if (key === null) throw noKey();
        const { approvalId } = request.query;
        if (approvalId !== undefined) await requireProof(request, { attempts, clock: context.clock });
        const signed = await servicesTokenFor(context, { key, reasonFor }, callerOf(request), { approvalId });
        reply.code(201);
        return success('Token signed', signed);
      },
    );
  };
}

function noKey(): Refusal {
  const message =
    'This registry signs no tokens for the services: set registry.servicesToken and services.operators.registryKeys';
  return new Refusal(404, message, [], 'services_tokens_off');
}
