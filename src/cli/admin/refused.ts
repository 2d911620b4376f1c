import { OperatorError } from '../../config/operator-error.js';
import { Check } from '../../typebox/typebox.js';
import { failureSchema } from './admin-answer.js';
import { capital, type Peer, WrongUsage } from './peer.js';
import { printable } from './printable.js';

/** The API itself did not carry something out. */
export class RefusedByApi extends OperatorError {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

const longestText = 500;
const mostProblems = 100;

/** What to do about an answer of this status, where its message does not say that already. */
const advice = ({ name, option, tokenOption, tokenVariable, lists }: Peer): Readonly<Record<number, string>> => ({
  400: 'Check what was given.',
  401: `Check the token: ${tokenOption}, or ${tokenVariable}, must hold that of ${name.replace('the registry', 'this registry')}.`,
  404: `Check the id (${lists}), and that ${option} names ${name.replace('the registry', 'a registry')} of this version.`,
  503: 'Try again when what it needs is back.',
});

/** How the API asks for a confirmation, which this command line gives by an option. */
const confirmationForm = /send "confirm": \["([a-z_]+)"\] too if/;

/** Says why an answer is no success, what to do, and, for a change, whether it may have been made all the same. */
export function refused(asked: Asked, response: Response, body: unknown): OperatorError {
  const { peer, address, isChange } = asked;
  const { status } = response;
  const name = capital(peer.name);
  if (status >= 300 && status < 400) {
    const target = response.headers.get('location');
    const to = target === null ? '' : ` to ${shown(target)}`;
    return new OperatorError(
      `${address} redirects (status ${status})${to}, which is not followed, so that the token goes nowhere else. Give the address of ${peer.name} itself with ${peer.option}.`,
    );
  }
  // The database, or what stands between, may have failed after the change and before the answer.
  const isUnclear = isChange && status >= 500;
  if (!Check(failureSchema, body)) return notAPeer(asked, response, isUnclear);
  const { errors = [] } = body.data ?? {};
  if (errors.length > 0) {
    const count = errors.length === 1 ? '1 problem' : `${errors.length} problems`;
    const told = errors.slice(0, mostProblems).map(({ message }) => `  ${shown(inOptions(message))}`);
    return new OperatorError([`${name} did not accept this (${count}):`, ...told].join('\n'));
  }
  const message = shown(body.message).replace(/\.$/, '');
  const what = status >= 500 ? `${name} failed (status ${status})` : `${name} refused (status ${status})`;
  const next = isUnclear ? nextAfter(asked) : advice(peer)[status];
  const why = status >= 500 && status !== 503 ? `${capital(peer.log)} says why.` : '';
  return new RefusedByApi([`${what}: ${message}.`, why, next ?? ''].filter((text) => text !== '').join(' '), status);
}

/**
 * Says that an answer is not one of the API that was meant.
 * @param isUnclear for a change of which nobody knows whether it was made
 */
export function notAPeer(asked: Asked, { status, headers }: Response, isUnclear: boolean): OperatorError {
  const { peer, address } = asked;
  const type = headers.get('content-type') ?? 'no content type';
  const what = `${address} did not answer as ${peer.name.replace('the registry', 'a registry')} of this version does (status ${status}, ${shown(type)}).`;
  const next = isUnclear ? ` ${nextAfter(asked)}` : '';
  return new OperatorError(`${what} Check ${peer.option}, and what stands between.${next}`);
}

/** By which options the parameters of a query are given, where their names differ. */
const optionNames: Readonly<Record<string, string>> = { name: 'search', merchantId: 'merchant' };

/** Says what is wrong with the query of a list, in the names of options; null: the answer is about something else. */
export function wrongFilter({ status }: Response, body: unknown, query: object): WrongUsage | null {
  if (status !== 422 || !Check(failureSchema, body)) return null;
  const told = (body.data?.errors ?? []).slice(0, mostProblems).map(({ message }) => {
    const [name = '', ...rest] = shown(message).split(' ');
    const option = optionNames[name] ?? name.replaceAll(/_?([A-Z])|_/g, (_, letter?: string) => `-${letter ?? ''}`);
    return name in query ? [`--${option.toLowerCase()}`, ...rest].join(' ') : shown(message);
  });
  return told.length === 0 ? null : new WrongUsage(told.join('\n'));
}

function inOptions(message: string): string {
  return message.replace(confirmationForm, (_, flag: string) => `add --confirm ${flag} if`);
}

function shown(text: string): string {
  return printable(text.slice(0, longestText));
}

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
