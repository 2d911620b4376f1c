import { METHODS } from '../node/http.js';

const known: ReadonlySet<string | undefined> = new Set(METHODS);
const unproxiedMethod = 'TRACE';

/**
 * The method as which a request is served. One that Node does not list, such as those of RTSP, is
 * served as one that is not proxied: Fastify would answer it itself, outside of every hook.
 */
export function servedMethod(method: string | undefined): string {
  return method !== undefined && known.has(method) ? method : unproxiedMethod;
}
