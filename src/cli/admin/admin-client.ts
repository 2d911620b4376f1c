import { OperatorError } from '../../config/operator-error.js';
import type { ClientTrust } from '../../tls/client-trust.js';
import { Check, type Static, type TSchema } from '../../typebox/typebox.js';
import { type AdminResponse, parseJson, parseSuccess } from './admin-response.js';
import { type Peer, registryPeer } from './peer.js';
import { type RequestTarget, nextAfter, unexpectedResponse, failureOf, unreachable, wrongFilter } from './refused.js';

/** A request to the admin API. */
export interface AdminRequest<Schema extends TSchema> {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  /** The path segments below the address. The client percent-encodes each of them. */
  readonly path: readonly string[];
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly body?: object;
  /** Set if the request is idempotent: the user can then repeat it after any failure. */
  readonly isRepeatable?: true;
  /** Advice for the user if it is unknown whether the change was made. Default: check before a retry. */
  readonly ifUnclear?: string | undefined;
  /** Schema of `data` in the success response. */
  readonly expects: Schema;
}

/**
 * The address of an API, and the certificates that a client trusts for this API. If `trust` is null, the client trusts
 * the CAs of the system.
 */
export interface ApiTarget {
  readonly address: URL;
  readonly trust: ClientTrust | null;
}

/** Address and credentials of an API. */
export interface AdminAccess {
  /** The API at `address`; default: the registry. */
  readonly peer?: Peer;
  readonly address: URL;
  readonly token: string;
  /**
   * Called if the API rejects a token (status 401), for example because another command has refreshed the sign-in.
   * Returns the token with which the client repeats the request; null or `rejected` if there is no other token.
   */
  readonly renew?: (rejected: string) => Promise<string | null>;
  /** The server certificates that the client trusts. The default, null, stands for the CAs that the system trusts. */
  readonly trust?: ClientTrust | null;
  /**
   * Name of the user (`x-actor`); null to send none. The API stores the name only if `token` is the shared token, which
   * names no administrator.
   */
  readonly actor?: string | null;
  /** Reason for the change (`x-reason`), for the audit trail; null without a reason. */
  readonly reason?: string | null;
  /** Called with the expiry time (ISO 8601) if the API announces that the token expires soon. */
  readonly onExpiry?: (at: string) => void;
  readonly timeoutMilliseconds?: number;
}

const maxResponseBytes = 16 * 1024 * 1024;

/** A client of the admin API or the operators' API. Its error messages never contain the token. */
export class AdminClient {
  readonly #access: Required<AdminAccess>;
  #sender: ReturnType<typeof senderFor> | null = null;
  #token: string;

  constructor(access: AdminAccess) {
    this.#token = access.token;
    this.#access = {
      peer: registryPeer,
      renew: () => Promise.resolve(null),
      trust: null,
      actor: null,
      reason: null,
      onExpiry: () => undefined,
      timeoutMilliseconds: 10_000,
      ...access,
    };
  }

  /**
   * Sends a request and validates the response.
   * @throws OperatorError if the API is unreachable, rejects the request, or sends an unexpected or too large response
   * @throws WrongUsage if the API rejects a query parameter
   */
  async ask<Schema extends TSchema>(request: AdminRequest<Schema>): Promise<AdminResponse<Static<Schema>>> {
    const isChange = request.method !== 'GET' && request.isRepeatable !== true;
    const { peer, address } = this.#access;
    const target = { peer, address: address.href, isChange, ifUnclear: request.ifUnclear };
    const sent = this.#token;
    const first = await this.#send(request, target);
    // A request with a rejected token has changed nothing, so it can be repeated.
    const isRepeated = first.response.status === 401 && (await this.#renewed(sent));
    const { response, text } = isRepeated ? await this.#send(request, target) : first;
    if (text === null) {
      const next = isChange ? nextAfter(target) : 'Request fewer entries per page: --per-page.';
      throw new OperatorError(`The response of ${target.address} exceeds ${maxResponseBytes} bytes. ${next}`);
    }
    const body = parseJson(text);
    if (!response.ok) {
      const { method, query = {} } = request;
      const wrong = method === 'GET' || request.query !== undefined ? wrongFilter(response, body, query) : null;
      if (wrong !== null) throw wrong;
      throw failureOf(target, response, body);
    }
    const parsed = parseSuccess(body);
    if (parsed !== null && Check(request.expects, parsed.data)) return { ...parsed, data: parsed.data };
    throw unexpectedResponse(target, response, isChange);
  }

  /** Replaces a rejected token. Returns false if there is no other token. */
  async #renewed(rejected: string): Promise<boolean> {
    if (this.#token === rejected) this.#token = (await this.#access.renew(rejected)) ?? rejected;
    return this.#token !== rejected;
  }

  async #send(
    request: AdminRequest<TSchema>,
    asked: RequestTarget,
  ): Promise<{ response: Response; text: string | null }> {
    const { address, trust, actor, reason, onExpiry, timeoutMilliseconds } = this.#access;
    const { method, body } = request;
    const send = await (this.#sender ??= senderFor(trust));
    try {
      const response = await send(urlOf(address, request), {
        method,
        headers: {
          authorization: `Bearer ${this.#token}`,
          accept: 'application/json',
          ...(method !== 'GET' && actor !== null ? { 'x-actor': actor } : {}),
          // Encode the reason, because HTTP headers carry only ASCII reliably.
          ...(reason === null ? {} : { 'x-reason': encodeURIComponent(reason) }),
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        },
        body: body === undefined ? null : JSON.stringify(body),
        redirect: 'manual',
        signal: AbortSignal.timeout(timeoutMilliseconds),
      });
      const expiry = response.headers.get('x-token-expires-at');
      if (expiry !== null) onExpiry(expiry);
      return { response, text: await limitedText(response) };
    } catch (error) {
      throw unreachable(asked, error, timeoutMilliseconds);
    }
  }
}

/**
 * Returns the function that sends requests: Node's `fetch`, or the `fetch` of undici if `trust` is not null. Node's
 * `fetch` has no option for trusted certificates.
 */
export async function senderFor(
  trust: ClientTrust | null,
): Promise<(url: URL, init: RequestInit) => Promise<Response>> {
  if (trust === null) return fetch;
  // Load undici lazily, because most commands do not need it.
  const { Agent, fetch: send } = await import('undici');
  const dispatcher = new Agent({ connect: { ...trust } });
  return async (url, init) => {
    const response: unknown = await send(url, { ...init, dispatcher } as Parameters<typeof send>[1]);
    return response as Response; // undici's own Response class, which has the same methods as the global one
  };
}

function urlOf(address: URL, { path, query = {} }: AdminRequest<TSchema>): URL {
  const url = new URL(address);
  url.pathname = [url.pathname.replace(/\/+$/, ''), ...path.map(encodeURIComponent)].join('/');
  for (const [name, value] of Object.entries(query)) if (value !== undefined) url.searchParams.set(name, value);
  return url;
}

/** Reads the body of a response as text. Returns null, and stops reading, if the body exceeds `maxResponseBytes`. */
async function limitedText({ body }: Response): Promise<string | null> {
  if (body === null) return '';
  const decoder = new TextDecoder();
  let text = '';
  let size = 0;
  // Returning from the loop cancels the stream.
  for await (const chunk of body as ReadableStream<Uint8Array>) {
    size += chunk.byteLength;
    if (size > maxResponseBytes) return null;
    text += decoder.decode(chunk, { stream: true });
  }
  return text + decoder.decode();
}
