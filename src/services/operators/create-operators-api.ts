import type { FastifyInstance } from 'fastify';
import type { Logger } from '../../rest/answer-errors.js';
import { requireToken } from '../../rest/bearer-token.js';
import { describeRoutes, type ApiDescription, type DescribedRoute } from '../../rest/openapi/describe-routes.js';
import { success } from '../../rest/envelope.js';
import { Refusal } from '../../rest/refusal.js';
import { createRestApp, type RestApp, type ServerTls } from '../../rest/rest-app.js';
import { movementRoutes } from './movement-routes.js';
import { walletRoutes, type OperatorContext } from './wallet-routes.js';

/** What the operators' API is made with. */
export interface OperatorsOptions extends OperatorContext {
  /** What operators show to be let in. */
  readonly token: string;
  /** Null: plain HTTP. */
  readonly tls: ServerTls | null;
  readonly logger?: Logger | undefined;
}

/** Makes the operators' API: wallets and their money. It is an app of its own, which no request of a merchant comes to. */
export function createOperatorsApi({ token, tls, logger, ...context }: OperatorsOptions): RestApp {
  const admit = requireToken(token);
  const app = createRestApp({
    logger,
    tls,
    admit: (app) => {
      refuseForwarded(app);
      admit(app);
    },
  });
  const description = describeRoutes(app, operatorsDescription);
  walletRoutes(app, context);
  movementRoutes(app, context);
  app.get('/livez', { config: { isOpen: true } }, () => success('Alive', null));
  app.get('/openapi.json', { config: { isOpen: true } }, () => description());
  return app;
}

/** Also where an upstream was set to this address by mistake: the gateway names the merchant in each request, and takes the header from callers. */
function refuseForwarded(app: FastifyInstance): void {
  app.addHook('onRequest', ({ headers }, _reply, done) => {
    const isForwarded = headers['x-merchant-id'] !== undefined || headers['x-gateway-assertion'] !== undefined;
    done(isForwarded ? new Refusal(403, 'Forbidden', [], 'forwarded') : undefined);
  });
}

const actor = {
  name: 'x-actor',
  in: 'header',
  description: 'In whose name',
  schema: { type: 'string', maxLength: 64 },
};

const operatorsDescription: ApiDescription = {
  info: {
    title: "merchant-gateway services: operators' API",
    version: '1',
    description: 'Wallets of merchants, and the money in them. Amounts are in minor units.',
  },
  security: { token: { type: 'http', scheme: 'bearer' } },
  failuresOf,
  headersOf: ({ method }) => (method === 'get' ? [] : [actor]),
  alsoAnswers: ({ method }) => (method === 'get' ? {} : { 200: 'It was done before, by the same request' }),
};

function failuresOf({ method, schema }: DescribedRoute): Record<number, string> {
  const isChange = method !== 'get';
  return {
    400: 'The request cannot be read',
    401: 'The token is missing or wrong',
    403: 'The request came through the gateway',
    ...(schema?.params === undefined ? {} : { 404: 'There is no such wallet' }),
    ...(isChange
      ? {
          409: 'The reference, or the id, is that of something else (reference_taken, wallet_exists)',
          413: 'The body is too large',
          415: 'The body is not application/json, or it is compressed',
        }
      : {}),
    422: 'Fields cannot be accepted (data.errors), or data.code says why: wrong_environment, wrong_currency, wrong_merchant, insufficient_balance, balance_too_large',
    500: 'A failure that nobody foresaw',
    503: isChange
      ? 'The database is away. It may have been done all the same: send the same request again'
      : 'The database is away',
  };
}
