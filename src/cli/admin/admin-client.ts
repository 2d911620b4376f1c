import { OperatorError } from '../../config/operator-error.js';
import { Check, type Static, type TSchema } from '../../typebox/typebox.js';
import { type AdminAnswer, jsonIn, successIn } from './admin-answer.js';
import { type Peer, registryPeer } from './peer.js';
import { type Asked, nextAfter, notAPeer, refused, unreachable, wrongFilter } from './refused.js';

/** One thing to ask of the admin API. */
export interface AdminRequest<Schema extends TSchema> {
  readonly method: 'GET' | 'POST' | 'PATCH';
  /** Below the address; each part is one segment, whatever is in it. */
  readonly path: readonly string[];
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly body?: object;
  /** It may be asked again whatever became of it: it changes nothing, or nothing a second time. */
  readonly isRepeatable?: true;
  /** What to do where nobody knows whether a change was made; left out: to look. */
  readonly ifUnclear?: string | undefined;
  /** The form of the answer's `data`. */
  readonly expects: Schema;
}

/** Where an API is, and what lets a client in. */
export interface AdminAccess {
  /** Left out: the registry. */
  readonly peer?: Peer;
  readonly address: URL;
  readonly token: string;
  /** In whose name changes are made; null: the API's own word for whoever has the token. */
  readonly actor?: string | null;
  readonly timeoutMilliseconds?: number;
  readonly maxBytes?: number;
}

/** A client of the admin API, or of the operators' one. No failure holds the token. */
export class AdminClient {
  readonly #access: Required<AdminAccess>;

  constructor(access: AdminAccess) {
    this.#access = {
      peer: registryPeer,
      actor: null,
      timeoutMilliseconds: 10_000,
      maxBytes: 16 * 1024 * 1024,
      ...access,
    };
  }

  /**
   * @throws OperatorError
   * @throws WrongUsage for a query that the registry does not accept
   */
  async ask<Schema extends TSchema>(request: AdminRequest<Schema>): Promise<AdminAnswer<Static<Schema>>> {
    const isChange = request.method !== 'GET' && request.isRepeatable !== true;
    const { peer, address } = this.#access;
    const asked = { peer, address: address.href, isChange, ifUnclear: request.ifUnclear };
    const { response, text } = await this.#send(request, asked);
    if (text === null) {
      const next = isChange ? nextAfter(asked) : 'Ask for fewer at a time: --per-page.';
      throw new OperatorError(`The answer of ${asked.address} is longer than ${this.#access.maxBytes} bytes. ${next}`);
    }
    const body = jsonIn(text);
    if (!response.ok) {
      const wrong = request.method === 'GET' ? wrongFilter(response, body, request.query ?? {}) : null;
      if (wrong !== null) throw wrong;
      throw refused(asked, response, body);
    }
    const answer = successIn(body);
    if (answer !== null && Check(request.expects, answer.data)) return { ...answer, data: answer.data };
    throw notAPeer(asked, response, isChange);
  }

  async #send(request: AdminRequest<TSchema>, asked: Asked): Promise<{ response: Response; text: string | null }> {
    const { address, token, actor, timeoutMilliseconds, maxBytes } = this.#access;
    const { method, body } = request;
    try {
      const response = await fetch(urlOf(address, request), {
        method,
        headers: {
          authorization: `Bearer ${token}`,
          accept: 'application/json',
          ...(method !== 'GET' && actor !== null ? { 'x-actor': actor } : {}),
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        },
        body: body === undefined ? null : JSON.stringify(body),
        redirect: 'manual',
        signal: AbortSignal.timeout(timeoutMilliseconds),
      });
      return { response, text: await limitedText(response, maxBytes) };
    } catch (error) {
      throw unreachable(asked, error, timeoutMilliseconds);
    }
  }
}

function urlOf(address: URL, { path, query = {} }: AdminRequest<TSchema>): URL {
  const url = new URL(address);
  url.pathname = [url.pathname.replace(/\/+$/, ''), ...path.map(encodeURIComponent)].join('/');
  for (const [name, value] of Object.entries(query)) if (value !== undefined) url.searchParams.set(name, value);
  return url;
}

/** The body of a response as text; null where it is longer than that, of which no more is read. */
async function limitedText({ body }: Response, maxBytes: number): Promise<string | null> {
  if (body === null) return '';
  const decoder = new TextDecoder();
  let text = '';
  let size = 0;
  // Leaving the loop cancels the rest.
  for await (const chunk of body as ReadableStream<Uint8Array>) {
    size += chunk.byteLength;
    if (size > maxBytes) return null;
    text += decoder.decode(chunk, { stream: true });
  }
  return text + decoder.decode();
}
