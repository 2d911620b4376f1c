import { OperatorError } from '../../config/operator-error.js';
import { Check } from '../../typebox/typebox.js';
import { failureSchema } from './admin-response.js';
import { capital, caFileVariable, type Peer, WrongUsage } from './peer.js';
import { printable } from './printable.js';

/** Thrown if the API rejected a request, or failed while processing it. */
export class RejectedByApi extends OperatorError {
  constructor(
    message: string,
    readonly status: number,
    /** `approval_required` if the change waits for an approval; otherwise null. */
    readonly code: string | null = null,
  ) {
    super(message);
  }
}

const longestText = 500;
const mostProblems = 100;

/** Returns advice for the user, keyed by the HTTP status of the error response. */
const advice = ({
  name,
  option,
  tokenOption,
  tokenVariable,
  rejectedToken,
  lists,
  log,
  section,
}: Peer): Readonly<Record<number, string>> => ({
  400: 'Check the arguments.',
  401:
    rejectedToken ??
    `Check that ${tokenOption}, or ${tokenVariable}, gives a valid token for ${name.replace('the registry', 'this registry')}.` +
      (section === 'registry' ? ' If you have signed in, run "merchant-gateway login" again.' : ''),
  403: 'Run "merchant-gateway whoami" and "merchant-gateway roles" to see what this token may do.',
  421: `Check the host in ${option}: it must be in the certificate of ${name}, or be listed in registry.hosts.`,
  404: `Check the id with a command such as ${lists}. Also check that ${option} is the address of ${name.replace('the registry', 'a registry')} of the same version as this command.`,
  503: `Try again. If this fails again, read ${log}.`,
});

/**
 * Matches the hint of the API to repeat the request with `confirm`. Error messages name the option `--confirm` instead.
 */
const confirmationForm = /send "confirm": \["([a-z_]+)"\] too if/;

/**
 * Describes an error response and what to do next. For a change, also states whether the API could have made it despite
 * the error.
 */
export function failureOf(asked: RequestTarget, response: Response, body: unknown): OperatorError {
  const { peer, address, isChange } = asked;
  const { status } = response;
  const name = capital(peer.name);
  if (status >= 300 && status < 400) {
    const target = response.headers.get('location');
    const to = target === null ? '' : ` to ${shown(target)}`;
    return new OperatorError(
      `${address} redirects (status ${status})${to}. Redirects are not followed, to protect the token. ` +
        `Give the direct address of ${peer.name} with ${peer.option}.`,
    );
  }
  // The database or a proxy could have failed after the change was made and before the response was sent.
  const isUnclear = isChange && status >= 500;
  if (!Check(failureSchema, body)) return unexpectedResponse(asked, response, isUnclear);
  const { errors = [] } = body.data ?? {};
  if (errors.length > 0) {
    const count = errors.length === 1 ? '1 problem' : `${errors.length} problems`;
    const lines = errors.slice(0, mostProblems).map(({ message }) => `  ${shown(inOptions(message))}`);
    return new OperatorError([`${name} rejected the request (${count}):`, ...lines].join('\n'));
  }
  const message = shown(body.message).replace(/\.$/, '');
  // The request did not fail: the change waits for an approval. The message already says who must approve the change
  // and until when, so do not prefix the message with "rejected".
  const { code = null } = body.data ?? {};
  if (code === 'approval_required') return new RejectedByApi(`${message}.`, status, code);
  const what = status >= 500 ? `${name} failed (status ${status})` : `${name} rejected the request (status ${status})`;
  const next = isUnclear ? nextAfter(asked) : advice(peer)[status];
  const why = status >= 500 && status !== 503 ? `${capital(peer.log)} has the reason.` : '';
  return new RejectedByApi([`${what}: ${message}.`, why, next ?? ''].filter((text) => text !== '').join(' '), status);
}

/**
 * Describes a response that does not have the form of the expected API.
 * @param isUnclear true if the request was a change that the API may have made
 */
export function unexpectedResponse(
  asked: RequestTarget,
  { status, headers }: Response,
  isUnclear: boolean,
): OperatorError {
  const { peer, address } = asked;
  const type = headers.get('content-type') ?? 'no content type';
  const expected = peer.name.replace('the registry', 'a registry');
  const what = `${address} did not respond like ${expected} of the same version as this command (status ${status}, ${shown(type)}).`;
  const next = isUnclear ? ` ${nextAfter(asked)}` : '';
  return new OperatorError(
    `${what} Check ${peer.option}, and the proxies between this machine and ${peer.name}.${next}`,
  );
}

/** Names of options that differ from the query parameter that they set, keyed by parameter. */
const optionNames: Readonly<Record<string, string>> = {
  ...{ name: 'search', merchantId: 'merchant', administratorId: 'administrator' },
  ...{ actor: 'who', requestId: 'request', reason: 'given-reason' },
};

/**
 * Returns a usage error if the API rejected query parameters (status 422). The error names command-line options instead
 * of the parameters. Null for any other response.
 */
export function wrongFilter({ status }: Response, body: unknown, query: object): WrongUsage | null {
  if (status !== 422 || !Check(failureSchema, body)) return null;
  const messages = (body.data?.errors ?? []).slice(0, mostProblems).map(({ message }) => {
    const [name = '', ...rest] = shown(message).split(' ');
    const option = optionNames[name] ?? name.replaceAll(/_?([A-Z])|_/g, (_, letter?: string) => `-${letter ?? ''}`);
    return name in query ? [`--${option.toLowerCase()}`, ...rest].join(' ') : shown(message);
  });
  return messages.length === 0 ? null : new WrongUsage(messages.join('\n'));
}

function inOptions(message: string): string {
  return message.replace(confirmationForm, (_, flag: string) => `add --confirm ${flag} if`);
}

function shown(text: string): string {
  return printable(text.slice(0, longestText));
}

/** The API that received a request, and whether the request was a change. */
export interface RequestTarget {
  readonly peer: Peer;
  readonly address: string;
  readonly isChange: boolean;
  /** Advice if it is unknown whether the change was made. Undefined for the default advice: check before a retry. */
  readonly ifUnclear: string | undefined;
}

/** Returns messages for failures before the request was sent, keyed by error code. */
const neverSent = ({ start, option }: Peer): Readonly<Record<string, string>> => ({
  ECONNREFUSED: `the connection was refused. Start ${start}, or give the right address with ${option}`,
  ENOTFOUND: `the host name does not exist. Check ${option}`,
  EAI_AGAIN: 'the host name cannot be resolved now. Check DNS',
  EHOSTUNREACH: 'there is no route to the host. Check the network',
  ENETUNREACH: 'there is no route to the network. Check the network',
  EACCES: 'this machine does not allow the connection. Check its firewall',
  UND_ERR_CONNECT_TIMEOUT: `the connection timed out. Check ${option} and the network`,
  ERR_SSL_WRONG_VERSION_NUMBER: 'it does not speak TLS. Check whether the address must begin with http://',
  ERR_SSL_PACKET_LENGTH_TOO_LONG: 'it does not speak TLS. Check whether the address must begin with http://',
});

/** Returns the message for a certificate that the client does not accept; undefined for any other error code. */
function certificateProblem({ name, option }: Peer, code: string): string | undefined {
  if (code === 'CERT_HAS_EXPIRED') return `its certificate has expired. Renew the certificate of ${name}`;
  if (code === 'CERT_NOT_YET_VALID')
    return `its certificate is not valid yet. Check the clocks of both machines, and the certificate of ${name}`;
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID')
    return `its certificate is for other host names. With ${option}, give an address whose host name is in the certificate`;
  if (!/CERT|^UNABLE_TO_/.test(code)) return undefined;
  const caOption = option.startsWith('--') ? `--ca-file or ${caFileVariable}` : 'services.operators.trail.caFile';
  return `its certificate is not trusted (${printable(code)}). Give the file of its CA with ${caOption}, and check ${option}`;
}

/**
 * Describes why there is no response, and what to do next. For a change, also states whether the API could have made
 * it.
 */
export function unreachable(asked: RequestTarget, cause: unknown, timeoutMilliseconds: number): OperatorError {
  const { peer, address } = asked;
  const code = codeOf(cause);
  const known = certificateProblem(peer, code) ?? neverSent(peer)[code];
  if (known !== undefined) return new OperatorError(`Cannot reach ${peer.name} at ${address}: ${known}.`, { cause });
  const reason =
    cause instanceof Error && cause.name === 'TimeoutError'
      ? `it did not respond within ${timeoutMilliseconds / 1000} seconds`
      : `the connection failed (${printable(code || 'unknown reason')})${hintOfTls(address, code)}`;
  return new OperatorError(`Cannot reach ${peer.name} at ${address}: ${reason}. ${nextAfter(asked)}`, { cause });
}

/**
 * Returns a hint to use https if a server closed a plain HTTP connection, as TLS servers do; otherwise an empty text.
 */
function hintOfTls(address: string, code: string): string {
  const isClosed = code === 'UND_ERR_SOCKET' || code === 'ECONNRESET';
  return isClosed && address.startsWith('http:') ? '; if it serves TLS, the address must begin with https://' : '';
}

/** Returns advice for a request whose result is unknown. */
export function nextAfter({ peer, isChange, ifUnclear }: RequestTarget): string {
  if (!isChange) return `Check ${peer.name} and the network, and try again.`;
  return (
    ifUnclear ?? `The change may have been made nevertheless: check with ${peer.checkCommands} before you try again.`
  );
}

/** Returns the code of an error, or of its nearest `cause` that has a code. Empty if there is no code. */
function codeOf(error: unknown): string {
  for (let one = error, depth = 0; one instanceof Error && depth < 5; one = one.cause, depth += 1) {
    if ('code' in one && typeof one.code === 'string') return one.code;
  }
  return '';
}
