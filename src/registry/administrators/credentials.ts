import type { FastifyReply, FastifyRequest } from 'fastify';
import { Refusal } from '../../rest/refusal.js';
import { maskTokens } from '../../telemetry/mask-keys.js';
import type { Caller, Identified, Identities } from './caller.js';
import { tokenPrefix } from './token-text.js';

/** How the callers of a listener prove who they are. */
export interface Credentials {
  /**
   * Checks the credential of a request.
   * @param source the client's IP address
   */
  identify(request: FastifyRequest, source: string, now: number): Promise<Identified>;
  /** Notes that the credential of a caller was used by a person or a program. */
  noteUse(request: FastifyRequest, caller: Caller, now: number): Promise<void>;
  /** Prepares the response to a request that was rejected. */
  onRejected(reply: FastifyReply): void;
  /** Returns the response to a rejected request. It says the same of all unknown credentials. */
  refusalOf(rejection: string, request: FastifyRequest): Refusal;
}

const headerForm = /^Bearer +(?<token>[A-Za-z0-9._~+/=-]{1,4096})$/i;
const absentMessage = 'A bearer token is required';
const misplacedMessage = `${absentMessage} in the authorization header. Replace the token, which others may have read`;

/** The credentials of the admin API: bearer tokens. It does not read cookies. */
export function bearerCredentials(identities: Identities): Credentials {
  return {
    identify: async (request, source, now) => {
      if (isMisplaced(request)) return { rejection: 'misplaced', credential: { tokenId: null } };
      const token = tokenIn(request);
      if (token === undefined) return { rejection: absenceIn(request), credential: { tokenId: null } };
      return identities.identify(token, source, now);
    },
    // `identify` has noted it.
    noteUse: () => Promise.resolve(),
    onRejected: (reply) => void reply.header('www-authenticate', 'Bearer'),
    refusalOf: (rejection, request) => {
      if (rejection === 'misplaced') return new Refusal(401, misplacedMessage);
      // The same message for each cause, so that nobody learns which tokens exist.
      return new Refusal(401, tokenIn(request) === undefined ? absentMessage : 'Invalid token');
    },
  };
}

function tokenIn({ headers }: FastifyRequest): string | undefined {
  return headerForm.exec(headers.authorization ?? '')?.groups?.token;
}

/**
 * Whether a token is in a place that logs and other servers read, even if the authorization header has one too. Without
 * that header, its prefix is enough: a search for the word `mga_` is no token.
 */
function isMisplaced({ url, headers }: FastifyRequest): boolean {
  const { authorization = '', cookie = '', 'proxy-authorization': proxy = '', 'x-api-key': key = '' } = headers;
  const places = [url, decoded(url), cookie, proxy, ...[key].flat()];
  return places.some((text) => (authorization === '' ? text.includes(tokenPrefix) : maskTokens(text) !== text));
}

/** Why a request has no bearer token: it has no credential at all, or another one. */
function absenceIn({ headers }: FastifyRequest): 'absent' | 'malformed' {
  return (headers.authorization ?? '') === '' ? 'absent' : 'malformed';
}

function decoded(url: string): string {
  try {
    return decodeURIComponent(url);
  } catch {
    return url; // an invalid escape
  }
}
