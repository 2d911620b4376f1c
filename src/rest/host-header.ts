import type { FastifyRequest } from 'fastify';

const hostForm = /^(?<name>\[[^\]]*\]|[^:[\]]+)(?::[0-9]*)?$/;

/**
 * Returns the values of all Host headers. Reads the raw headers, because Node silently keeps only the first of two Host
 * headers.
 */
export function hostsIn({ raw: { rawHeaders } }: FastifyRequest): string[] {
  return rawHeaders.filter((_, index) => index % 2 === 1 && rawHeaders[index - 1]?.toLowerCase() === 'host');
}

/**
 * Returns the name in a Host header in lower case, without the port. An IPv6 address keeps its brackets. Empty if the
 * header is malformed.
 */
export function hostNameIn(host: string): string {
  return hostForm.exec(host)?.groups?.name?.toLowerCase() ?? '';
}
