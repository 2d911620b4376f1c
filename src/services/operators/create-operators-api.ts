import { randomUUID } from 'node:crypto';
import type { Logger } from '../../rest/error-responses.js';
import { describeRoutes, type ApiDescription, type DescribedRoute } from '../../rest/openapi/describe-routes.js';
import { success } from '../../rest/envelope.js';
import { createRestApp, type RestApp } from '../../rest/rest-app.js';
import type { ServerTls } from '../../tls/server-tls.js';
import { movementRoutes } from './movement-routes.js';
import { requireOperator } from './operator-access.js';
import type { ServicesTokenVerifier } from './services-token-verifier.js';
import { walletRoutes, type OperatorContext } from './wallet-routes.js';

/** Options of the operators' API. */
export interface OperatorsOptions extends OperatorContext {
  /** The bearer token that all operators share; null: there is no shared token. */
  readonly token: string | null;
  /** The verifier of tokens of the registry's administrators. Null or omitted: no such token is accepted. */
  readonly administrators?: ServicesTokenVerifier | null | undefined;
  /** TLS of the listener; null for plain HTTP. Closing the app also stops the reload of certificates. */
  readonly tls: ServerTls | null;
  readonly logger?: Logger | undefined;
}

/**
 * Creates the API with which operators manage wallets and their money. It has its own app and listener, so that
 * merchants' requests cannot reach it.
 */
export function createOperatorsApi({
  token,
  administrators = null,
  tls,
  logger,
  ...context
}: OperatorsOptions): RestApp {
  const { attempts } = context;
  const app = createRestApp({
    logger,
    tls,
    admit: requireOperator({ token, administrators, attempts }),
    onOversized: (source) => attempts?.signInFailed({ id: randomUUID(), source }, 'headers_too_large'),
  });
  if (attempts !== null) app.addHook('onClose', () => attempts.stop());
  const description = describeRoutes(app, operatorsDescription);
  walletRoutes(app, context);
  movementRoutes(app, context);
  app.get('/livez', { config: { isOpen: true } }, () => success('Alive', null));
  app.get('/openapi.json', { config: { isOpen: true } }, () => description());
  return app;
}

const actor = {
  name: 'x-actor',
  in: 'header',
  description:
    "The name of the operator who uses a shared token (services.operators.tokenFile or registry.tokenFile). The ledger stores the name unverified. With an administrator's token, the header is ignored",
  schema: { type: 'string', maxLength: 64 },
};

const reason = {
  name: 'x-reason',
  in: 'header',
  description:
    'The reason for the request, percent-encoded. A request that moves money has its reason in the body instead',
  schema: { type: 'string', maxLength: 1800 },
};

const operatorsDescription: ApiDescription = {
  info: {
    title: "merchant-gateway services: operators' API",
    version: '1',
    description: 'Wallets of merchants, and the money in them. Amounts are in minor units.',
  },
  security: { token: { type: 'http', scheme: 'bearer' } },
  failuresOf,
  headersOf: ({ method }) => (method === 'get' ? [reason] : [actor, reason]),
  extensionsOf: ({ config: { permission } }) => (permission === undefined ? {} : { 'x-permission': permission }),
  otherResponses: ({ method }) =>
    method === 'get' ? {} : { 200: 'An earlier, identical request already made the change' },
};

function failuresOf({ method, schema }: DescribedRoute): Record<number, string> {
  const isChange = method !== 'get';
  return {
    400: 'Malformed request',
    401: 'The token is missing or wrong',
    403: 'The operator lacks the permission that data.permission names, the funding needs approval (approval_required), or the request came through the gateway',
    ...(schema?.params === undefined ? {} : { 404: 'The wallet does not exist' }),
    ...(isChange
      ? {
          409: 'reference_taken: the reference belongs to a different movement, or to the same movement with a different reason. wallet_exists: an existing wallet differs from the requested wallet',
          413: 'The body is too large',
          415: 'The body is not application/json, or it is compressed',
        }
      : {}),
    422: 'data.code has the reason: validation_failed (data.errors lists the invalid fields), wrong_environment, wrong_currency, wrong_merchant, insufficient_balance or balance_too_large',
    500: 'Unexpected error',
    503: isChange
      ? 'The database is unavailable. The change may have been made nevertheless: send the same request again'
      : 'The database is unavailable',
  };
}
