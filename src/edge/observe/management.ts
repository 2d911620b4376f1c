import Fastify from 'fastify';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { CallerIdentity } from '../../gateway/ports.js';
import type { RenderedMetrics } from '../../telemetry/aggregate-metrics.js';
import { errorFailure } from '../response/replies.js';
import type { GatewayErrorCode } from '../../policy/gateway-errors.js';
import { handleParserError } from '../server/protocol-errors.js';

/** The health of a gateway. */
export interface Health {
  /** Why the gateway is not ready for traffic; empty while it is ready. */
  readonly problems: readonly string[];
  /** Current and upcoming problems that do not affect readiness, but need an operator. */
  readonly warnings: readonly string[];
  /** Further information for operators, by name. */
  readonly details: Readonly<Record<string, unknown>>;
}

/** The public keys that a gateway publishes to upstreams. */
export type PublishedKeys = Pick<CallerIdentity, 'publicKeys'>;

/** The data that the management listener serves. */
export interface ManagementOptions {
  readonly health: () => Health | Promise<Health>;
  readonly metrics: { render(): Promise<RenderedMetrics> };
  /**
   * The public keys with which upstreams verify assertions (JWTs that name the merchant). Null if the configuration
   * names no key.
   */
  readonly keys: PublishedKeys | null;
}

/**
 * Maximum number of connections, enough for operators and the orchestrator. The limit keeps other clients from using up
 * the file descriptors.
 */
const maxConnections = 256;

/**
 * Builds the management listener: health and metrics for operators and the orchestrator, public keys for upstreams.
 * It serves no API clients.
 */
export function createManagement({ health, metrics, keys }: ManagementOptions): FastifyInstance {
  const respond = (reply: FastifyReply, code: GatewayErrorCode): FastifyReply => {
    const { status, headers, body } = errorFailure(code);
    return reply.code(status).headers(headers).send(body);
  };
  const app = Fastify({
    forceCloseConnections: true,
    frameworkErrors: (_error, _request, reply) => {
      void respond(reply, 'malformed_request');
    },
    clientErrorHandler: (error, socket) => {
      handleParserError(error, socket, true, () => undefined);
    },
  });
  app.server.maxConnections = maxConnections;
  // No endpoint reads a body, so accept any content type and ignore the body.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_request, _body, done) => {
    done(null);
  });
  app.get('/livez', () => ({ status: 'alive' }));
  app.get('/readyz', async (_request, reply) => {
    const { problems, warnings, details } = await health();
    const ready = problems.length === 0;
    const status = ready ? 'ready' : 'not ready';
    return reply.code(ready ? 200 : 503).send({ status, problems, warnings, details });
  });
  app.get('/metrics', async (_request, reply) => {
    const { contentType, text } = await metrics.render();
    return reply.type(contentType).send(text);
  });
  if (keys !== null) {
    // Each public key is published before the gateway signs with the private key, so upstreams can cache the key set
    // for minutes.
    app.get('/.well-known/jwks.json', (_request, reply) =>
      reply.header('cache-control', 'public, max-age=300').send(keys.publicKeys),
    );
  }
  app.setNotFoundHandler((_request, reply) => respond(reply, 'not_found'));
  app.setErrorHandler((_error, _request, reply) => respond(reply, 'internal_error'));
  return app;
}
