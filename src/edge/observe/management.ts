import Fastify from 'fastify';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { CallerIdentity } from '../../gateway/ports.js';
import type { RenderedMetrics } from '../../telemetry/aggregate-figures.js';
import { errorFailure } from '../response/replies.js';
import type { GatewayErrorCode } from '../request/errors.js';
import { answerProtocolError } from '../server/protocol-errors.js';

/** How a gateway is. */
export interface Health {
  /** Why the gateway is not ready for traffic; empty while it is. */
  readonly problems: readonly string[];
  /** What will keep it from that if nobody does anything. */
  readonly warnings: readonly string[];
  /** What operators should know besides, by its name. */
  readonly details: Readonly<Record<string, unknown>>;
}

/** What the management listener tells. */
export interface ManagementOptions {
  readonly health: () => Health | Promise<Health>;
  readonly metrics: { render(): Promise<RenderedMetrics> };
  /** Null: nothing is signed, and there are no public keys to fetch. */
  readonly identity: CallerIdentity | null;
}

/** Operators and their orchestrator need a few; whoever else gets here cannot take the process's descriptors. */
const maxConnections = 256;

/**
 * Builds the management listener: health and metrics for operators and their orchestrator, public keys for upstreams,
 * never anything for callers.
 */
export function createManagement({ health, metrics, identity }: ManagementOptions): FastifyInstance {
  const answer = (reply: FastifyReply, code: GatewayErrorCode): FastifyReply => {
    const { status, headers, body } = errorFailure(code);
    return reply.code(status).headers(headers).send(body);
  };
  const app = Fastify({
    forceCloseConnections: true,
    frameworkErrors: (_error, _request, reply) => {
      void answer(reply, 'malformed_request');
    },
    clientErrorHandler: (error, socket) => {
      answerProtocolError(error, socket, true);
    },
  });
  app.server.maxConnections = maxConnections;
  // Nobody here reads a body, whatever it claims to be.
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
  if (identity !== null) {
    // A new key is published before it signs, so upstreams may keep the set for minutes.
    app.get('/.well-known/jwks.json', (_request, reply) =>
      reply.header('cache-control', 'public, max-age=300').send(identity.publicKeys),
    );
  }
  app.setNotFoundHandler((_request, reply) => answer(reply, 'not_found'));
  app.setErrorHandler((_error, _request, reply) => answer(reply, 'internal_error'));
  return app;
}
