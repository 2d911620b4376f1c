import { OperatorError } from '../../config/operator-error.js';
import type { Peer } from './peer.js';
import { printable } from './printable.js';

/** Who was asked, and whether for a change. */
export interface Asked {
  readonly peer: Peer;
  readonly address: string;
  readonly isChange: boolean;
  /** What to do where nobody knows whether a change was made; undefined: to look. */
  readonly ifUnclear: string | undefined;
}

/** Failures before anything was sent, by code. */
const neverSent = ({ start, option }: Peer): Readonly<Record<string, string>> => ({
  ECONNREFUSED: `nothing listens there. Start ${start}, or give its address with ${option}`,
  ENOTFOUND: `nothing has that name. Check ${option}`,
  EAI_AGAIN: 'its name cannot be looked up now. Check the name service',
  EHOSTUNREACH: 'no way leads to that host. Check the network',
  ENETUNREACH: 'no way leads to that network. Check the network',
  EACCES: 'this machine does not allow the connection. Check its firewall',
  UND_ERR_CONNECT_TIMEOUT: `it does not take connections. Check ${option} and the network`,
  ERR_SSL_WRONG_VERSION_NUMBER: 'it does not speak TLS. Check whether the address is one of http',
  ERR_SSL_PACKET_LENGTH_TOO_LONG: 'it does not speak TLS. Check whether the address is one of http',
});
const certificateCodes = /CERT|^UNABLE_TO_/;

/** Says why no answer came, what to do, and, for a change, whether it may have been made all the same. */
export function unreachable(asked: Asked, cause: unknown, timeoutMilliseconds: number): OperatorError {
  const { peer, address } = asked;
  const code = codeOf(cause);
  const known = certificateCodes.test(code)
    ? `its certificate cannot be trusted (${printable(code)}). Check ${peer.option}, or name the issuer's certificate in NODE_EXTRA_CA_CERTS`
    : neverSent(peer)[code];
  if (known !== undefined) return new OperatorError(`Cannot ask ${peer.name} at ${address}: ${known}.`, { cause });
  const reason =
    cause instanceof Error && cause.name === 'TimeoutError'
      ? `it did not answer within ${timeoutMilliseconds / 1000} seconds`
      : `the connection failed (${printable(code || 'unknown reason')})`;
  return new OperatorError(`Cannot ask ${peer.name} at ${address}: ${reason}. ${nextAfter(asked)}`, { cause });
}

/** What to do where nobody knows what became of a request. */
export function nextAfter({ peer, isChange, ifUnclear }: Asked): string {
  if (!isChange) return `Check ${peer.name} and the network, and try again.`;
  return ifUnclear ?? `The change may have been made all the same: look (${peer.look}) before you try again.`;
}

/** The code of an error, or of what it was caused by. */
function codeOf(error: unknown): string {
  for (let one = error, depth = 0; one instanceof Error && depth < 5; one = one.cause, depth += 1) {
    if ('code' in one && typeof one.code === 'string') return one.code;
  }
  return '';
}
