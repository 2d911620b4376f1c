import { readFileSync } from 'node:fs';
import { ownPaths } from '../../policy/route-paths.js';
import type { Config } from '../../config/schema.js';
import { createRouteTable } from '../../edge/request/routes.js';
import type { MerchantApi } from './merchant-api.js';

type RouteOptions = Pick<Config, 'basePath' | 'routes'>;

/** Restricts the description of the merchant API to the routes of a configuration, and sets its base path. */
export function restrictToRoutes(api: MerchantApi, { basePath, routes }: RouteOptions): MerchantApi {
  const routeOf = createRouteTable({ basePath: '', routes });
  const own: readonly string[] = ownPaths;
  const isServed = (path: string): boolean => {
    const place = routeOf(path.replaceAll(/\{(\w+)\}/g, '$1'));
    // A configured route can replace one of the gateway's own paths. Then the upstream serves the path, so omit the
    // gateway's own operation.
    return 'route' in place && (place.route.upstream === null) === own.includes(path);
  };
  const paths = Object.fromEntries(Object.entries(api.paths).filter(([path]) => isServed(path)));
  const operations = Object.values(paths).flatMap((methods) => Object.values(methods));
  const used = new Set(operations.flatMap(({ tags }) => tags));
  return {
    ...api,
    servers: api.servers.map((server) => ({ ...server, url: `https://{host}${basePath}` })),
    tags: api.tags.filter(({ name }) => used.has(name)),
    paths,
  };
}

/**
 * File with the OpenAPI description. The build generates this file, because the gateway would have to load all services
 * to generate it at startup.
 */
const generated = new URL('../../merchant-api.json', import.meta.url);

/** Returns the OpenAPI description of the merchant API that a gateway serves, as JSON. */
export function readPublicApi(config: RouteOptions): string {
  return JSON.stringify(restrictToRoutes(JSON.parse(readFileSync(generated, 'utf8')) as MerchantApi, config));
}
