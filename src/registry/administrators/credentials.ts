import type { FastifyReply, FastifyRequest } from 'fastify';
import { Refusal } from '../../rest/refusal.js';
import { maskTokens } from '../../telemetry/mask-keys.js';
import type { Caller, Identified, Identities, Rejected } from './caller.js';
import { tokenPrefix } from './token-text.js';

/** How the callers of one server (the admin API or the console) authenticate. */
export interface Credentials {
  /**
   * Checks the credential of a request.
   * @param source the client's IP address
   */
  identify(request: FastifyRequest, source: string, now: number): Promise<Identified>;
  /** Stores when the caller's credential was last used. */
  noteUse(request: FastifyRequest, caller: Caller, now: number): Promise<void>;
  /** Adds headers to the response to a request whose credential was rejected. */
  onRejected(reply: FastifyReply, rejected: Rejected): void;
  /**
   * Returns the error for a rejected credential. The error does not depend on whether the credential is unknown,
   * expired or revoked, so that clients cannot find out which credentials exist.
   */
  refusalOf(rejection: string, request: FastifyRequest): Refusal;
}

const headerForm = /^Bearer +(?<token>[A-Za-z0-9._~+/=-]{1,4096})$/i;
const absentMessage = 'A bearer token is required';
const misplacedMessage = `${absentMessage} in the authorization header. Revoke the token that this request sent outside that header, because others may have read it`;

/** The credentials of the admin API: bearer tokens. The admin API does not read cookies. */
export function bearerCredentials(identities: Identities): Credentials {
  return {
    identify: async (request, source, now) => {
      if (isMisplaced(request)) return { rejection: 'misplaced', credential: { tokenId: null } };
      const token = tokenIn(request);
      if (token === undefined) return { rejection: absenceIn(request), credential: { tokenId: null } };
      return identities.identify(token, source, now);
    },
    // `identify` has stored the use already.
    noteUse: () => Promise.resolve(),
    onRejected: (reply) => void reply.header('www-authenticate', 'Bearer'),
    refusalOf: (rejection, request) => {
      if (rejection === 'misplaced') return new Refusal(401, misplacedMessage);
      // All invalid tokens get the same message, so that a client cannot find out which tokens exist.
      return new Refusal(401, tokenIn(request) === undefined ? absentMessage : 'Invalid token');
    },
  };
}

function tokenIn({ headers }: FastifyRequest): string | undefined {
  return headerForm.exec(headers.authorization ?? '')?.groups?.token;
}

/**
 * Returns true if a token is in the URL, a cookie, `proxy-authorization` or `x-api-key`, where logs and other servers
 * can read it. If the request has no authorization header, the prefix `mga_` alone counts as a token. Otherwise, at
 * least 16 characters of a token must follow the prefix, so that a client can search for the text `mga_`.
 */
function isMisplaced({ url, headers }: FastifyRequest): boolean {
  const { authorization = '', cookie = '', 'proxy-authorization': proxy = '', 'x-api-key': key = '' } = headers;
  const places = [url, decoded(url), cookie, proxy, ...[key].flat()];
  return places.some((text) => (authorization === '' ? text.includes(tokenPrefix) : maskTokens(text) !== text));
}

/** Why a request has no bearer token: its authorization header is missing, or has another scheme or form. */
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
