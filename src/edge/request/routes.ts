import { foldSegment, ownPaths } from '../../policy/route-paths.js';
import { hasFixedSegments } from './request-data.js';

/** A path prefix that is routed to one upstream, or a path that the gateway itself responds to. */
interface Route {
  /** The path without the base path. */
  readonly path: string;
  /** Name of the upstream. Null if the gateway itself responds; such a route matches only this exact path. */
  readonly upstream: string | null;
  /** The resource that the permissions of a key must cover; null if any accepted key gives access to the route. */
  readonly resource: string | null;
  readonly methods: readonly string[];
}

/** The configured routes. */
interface RouteOptions {
  /** The path in front of every route, such as `/v1`; may be empty. */
  readonly basePath: string;
  readonly routes: readonly Pick<Route, 'path' | 'upstream' | 'resource'>[];
}

/** A route, and the path to send to its upstream. */
export interface RouteMatch {
  readonly route: Route;
  readonly upstreamPath: string;
}

/** Why a path is not forwarded. Only callers with a valid key receive this error. */
export interface PathProblem {
  readonly code: 'invalid_path' | 'not_found';
  /** Explanation for operators; never sent to the client. */
  readonly reason: string;
}

/** Returns the route of a path, or why the path is not forwarded. */
export type RouteTable = (path: string) => RouteMatch | PathProblem;

/**
 * Methods that the gateway proxies. TRACE is excluded, because a service would echo the identity headers to the caller.
 */
export const proxiedMethods: readonly string[] = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'];

/** Methods of the routes that the gateway itself responds to. */
const ownMethods: readonly string[] = ['GET', 'HEAD'];

/** A node in the trie of all paths with a route. Each level holds one path segment. */
interface Node {
  /** Child nodes by path segment. */
  readonly next: Map<string, Node>;
  /** The same child nodes by the result of `foldSegment`. Segments with the same result share one node. */
  readonly nextFolded: Map<string, Node>;
  /**
   * Routes that end at this node, with their full path. Several routes can end here if their paths differ only in
   * details that `foldSegment` removes.
   */
  readonly ends: { readonly path: string; readonly route: Route }[];
}

const unknown: PathProblem = { code: 'not_found', reason: 'no route has this path' };
const lookalike: PathProblem = {
  code: 'not_found',
  reason:
    'no route has exactly this path, but an upstream may map it to a route (because of capital letters, %2E, a semicolon or a suffix such as .json)',
};
const ambiguous: PathProblem = {
  code: 'invalid_path',
  reason:
    'the path is not UTF-8, contains a forbidden character, or contains a sequence (such as //, /../ or %2F) that an upstream may resolve to another path',
};

/** Matches characters of a path segment that a service could decode, cut off or convert. */
const notPlain = /[%;\u0080-\uffff]/;

/**
 * Builds the route table. A configured route matches a request path that equals the path of the route, or begins with
 * that path and a `/`. The longest match wins. A segment that a service could read as a segment of another route
 * matches no route. Otherwise the gateway would check the permission of one route, and the service would execute
 * another. Paths for upstreams lack the base path. A configured route replaces the gateway's own route of the same
 * path.
 */
export function createRouteTable(config: RouteOptions): RouteTable {
  const root = nodesOf(config);
  const baseLength = config.basePath.length;
  return (path) => {
    let node = root;
    let deepest: Node | null = null;
    let depth = 0;
    for (let start = 1; node.next.size > 0 && start <= path.length;) {
      const end = endOfSegment(path, start);
      const segment = path.slice(start, end);
      const next = node.next.get(segment);
      if (next === undefined) {
        if (notPlain.test(segment) || node.nextFolded.has(foldSegment(segment))) return lookalike;
        break;
      }
      node = next;
      start = end + 1;
      if (node.ends.length === 0) continue;
      deepest = node;
      depth = end;
    }
    if (!hasFixedSegments(path)) return ambiguous;
    if (deepest === null) return unknown;
    const found = deepest.ends.find((one) => one.path.length === depth && path.startsWith(one.path));
    if (found === undefined) return lookalike;
    if (found.route.upstream === null && depth < path.length) return unknown;
    return { route: found.route, upstreamPath: path.slice(baseLength) };
  };
}

function nodesOf({ basePath, routes }: RouteOptions): Node {
  const root = emptyNode();
  const own = ownPaths.filter((path) => routes.every((route) => route.path !== path));
  const all: readonly Route[] = [
    ...routes.map((route) => ({ ...route, methods: proxiedMethods })),
    ...own.map((path) => ({ path, upstream: null, resource: null, methods: ownMethods })),
  ];
  for (const route of all) {
    const path = basePath + route.path;
    let node = root;
    for (const segment of path.slice(1).split('/')) {
      const folded = foldSegment(segment);
      const next = node.nextFolded.get(folded) ?? emptyNode();
      node.nextFolded.set(folded, next);
      node.next.set(segment, next);
      node = next;
    }
    node.ends.push({ path, route });
  }
  return root;
}

function emptyNode(): Node {
  return { next: new Map(), nextFolded: new Map(), ends: [] };
}

function endOfSegment(path: string, start: number): number {
  const slash = path.indexOf('/', start);
  return slash === -1 ? path.length : slash;
}
