import type { Config } from '../config/schema.js';

/** A path family that goes to one upstream. */
interface Route {
  /** Below the base path. */
  readonly path: string;
  /** The upstream's name. */
  readonly upstream: string;
  /** What a key's permissions speak of. */
  readonly resource: string;
}

/** A route, and the path that its upstream gets. */
export interface RouteMatch {
  readonly route: Route;
  readonly upstreamPath: string;
}

/** Finds the route of a canonical path; null where there is none. */
export type RouteTable = (path: string) => RouteMatch | null;

/** The methods that are proxied; TRACE would echo the identity headers to the caller. */
export const proxiedMethods: readonly string[] = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'];

/** Builds the route table: the longest path that ends at a segment's end wins. The upstream does not see the base path. */
export function createRouteTable(config: Pick<Config, 'basePath' | 'routes'>): RouteTable {
  const { basePath } = config;
  const routes = config.routes.toSorted((a, b) => b.path.length - a.path.length);
  return (path) => {
    if (!path.startsWith(`${basePath}/`)) return null;
    const upstreamPath = path.slice(basePath.length);
    const route = routes.find((candidate) => isBelow(upstreamPath, candidate.path));
    return route === undefined ? null : { route, upstreamPath };
  };
}

function isBelow(path: string, prefix: string): boolean {
  return path.startsWith(prefix) && (path.length === prefix.length || path[prefix.length] === '/');
}
