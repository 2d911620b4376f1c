import path from 'node:path';
import fastifyStatic from '@fastify/static';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { Refusal } from '../../rest/refusal.js';

const assets = '/console/assets/';
/** The name of an asset, without any path. */
const assetName = /^\/?[\w-]+(?:\.[\w-]+)+$/;
const noPage = ['/console/api/', assets];

/**
 * Adds the page of the console and its assets. The names of assets contain a hash of their contents, so browsers may
 * keep them. The page is the same for all paths below `/console/`: the script in it reads the path.
 * @param directory the directory with `index.html` and `assets`
 */
export function addPages(app: FastifyInstance, directory: string): void {
  const shared = { preCompressed: true, cacheControl: false, index: false } as const;
  void app.register(fastifyStatic, {
    ...{ ...shared, root: path.join(directory, 'assets'), prefix: assets },
    // The plugin fails on encoded dots, which would be a 500 with a line in the log.
    allowedPath: (at) => assetName.test(at),
    // Version 9 of the plugin passes Node's own response.
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
