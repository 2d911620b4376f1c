/** Reason of a failed connection: a system or TLS code, e.g. ECONNREFUSED. A full message could contain secrets. */
export function connectionProblem(error: unknown): string {
  const { code, name } = error as { code?: unknown; name?: unknown };
  if (name === 'TimeoutError' || name === 'AbortError') return 'timeout';
  return typeof code === 'string' ? code : typeof name === 'string' ? name : 'unknown reason';
}
