/**
 * Returns a short cause for the log: `timeout`, the code of a system or TLS error (such as ECONNREFUSED), or the name
 * of the error. The full message is not used, because it could contain secrets.
 */
export function connectionProblem(error: unknown): string {
  const { code, name } = error as { code?: unknown; name?: unknown };
  if (name === 'TimeoutError' || name === 'AbortError') return 'timeout';
  // undici has its own timers, which may end a request before the caller's AbortSignal does.
  if (typeof code === 'string' && /^UND_ERR_(?:CONNECT|HEADERS|BODY)_TIMEOUT$/.test(code)) return 'timeout';
  return typeof code === 'string' ? code : typeof name === 'string' ? name : 'unknown reason';
}
