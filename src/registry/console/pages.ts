import path from 'node:path';
import fastifyStatic from '@fastify/static';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { Refusal } from '../../rest/refusal.js';

const assets = '/console/assets/';
/** The name of an asset: a file name without directories. */
const assetName = /^\/?[\w-]+(?:\.[\w-]+)+$/;
const noPage = ['/console/api/', assets];

/**
 * Adds the page of the console (`index.html`) and its assets. Browsers are allowed to cache an asset forever, because
 * its name contains a hash of its contents. All other paths below `/console/`, except those of the API, return
 * `index.html` too, because the script of this page reads the path.
 * @param directory the directory with `index.html` and `assets`
 */
export function addPages(app: FastifyInstance, directory: string): void {
  const shared = { preCompressed: true, cacheControl: false, index: false } as const;
  void app.register(fastifyStatic, {
    ...{ ...shared, root: path.join(directory, 'assets'), prefix: assets },
    // Rejects encoded dots, on which the plugin fails: each such request would cause a response with 500 and a line in
    // the log.
    allowedPath: (at) => assetName.test(at),
    // Version 9 of the plugin passes the response object of Node, not of Fastify.
    setHeaders: (response) => {
      response.setHeader('cache-control', 'public, max-age=31536000, immutable');
      response.setHeader('vary', 'accept-encoding');
    },
  });
  const page = async (_request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> =>
    reply
      .headers({ 'cache-control': 'no-cache', vary: 'accept-encoding' })
      .sendFile('index.html', directory, { cacheControl: false });
  app.get('/console/', page);
  for (const from of ['/', '/console'])
    app.get(from, async (_request, reply) => reply.header('cache-control', 'no-cache').redirect('/console/'));
  app.setNotFoundHandler(async (request, reply) => {
    const [at = ''] = request.url.split('?');
    const isPage = at.startsWith('/console/') && !noPage.some((prefix) => at.startsWith(prefix));
    if (isPage && ['GET', 'HEAD'].includes(request.method)) return page(request, reply);
    reply.header('cache-control', 'no-store');
    throw new Refusal(404, 'Not found');
  });
}
