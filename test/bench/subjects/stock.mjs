// Fastify with @fastify/http-proxy as documented, a key check in a hook, and optionally one pino line per request.
import httpProxy from '@fastify/http-proxy';
import Fastify from 'fastify';
import { certificate, checkKey, ready, settings } from './key-check.mjs';

async function start(tls) {
  const app = Fastify({
    ...tls,
    logger: settings.logFile === null ? false : { file: settings.logFile },
    disableRequestLogging: true,
  });
  app.addHook('onRequest', async (request, reply) => {
    const { denial, merchantId } = checkKey(request.headers);
    if (denial !== undefined) {
      return reply.code(401).header('content-type', 'application/json; charset=utf-8').send(denial);
    }
    request.merchantId = merchantId;
  });
  if (settings.logFile !== null) {
    app.addHook('onResponse', async (request, reply) => {
      const { method, url, ip, merchantId } = request;
      const { statusCode, elapsedTime } = reply;
      request.log.info({ method, path: url.split('?')[0], ip, merchantId, statusCode, elapsedTime }, 'request');
    });
  }
  app.decorateRequest('merchantId', '');
  await app.register(httpProxy, {
    upstream: `http://127.0.0.1:${settings.upstreamPort}`,
    prefix: '/v1',
    rewritePrefix: '',
    disableRequestLogging: true,
    replyOptions: {
      rewriteRequestHeaders: (request, { 'x-api-key': _, ...headers }) => ({
        ...headers,
        'x-merchant-id': request.merchantId,
      }),
    },
  });
  await app.listen({ port: 0, host: '127.0.0.1' });
  return app.server.address().port;
}

ready(await start({}), await start({ https: certificate() }));
