import { OperatorError } from '../../config/operator-error.js';
import { Check, type Static, type TSchema } from '../../typebox/typebox.js';
import { jsonIn, successIn, type AdminAnswer } from './admin-answer.js';
import { limitedText } from './limited-text.js';
import { notARegistry, refused, wrongFilter } from './refused.js';
import { nextAfter, unreachable } from './unreachable.js';

/** One thing to ask of the admin API. */
export interface AdminRequest<Schema extends TSchema> {
  readonly method: 'GET' | 'POST' | 'PATCH';
  /** Below the registry's address; each part is one segment, whatever is in it. */
  readonly path: readonly string[];
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly body?: object;
  /** It may be asked again whatever became of it: it changes nothing, or nothing a second time. */
  readonly isRepeatable?: true;
  /** The form of the answer's `data`. */
  readonly expects: Schema;
}

/** Where the registry is, and what lets a client in. */
export interface AdminAccess {
  readonly registry: URL;
  readonly token: string;
  /** In whose name changes are made; null: the registry's own word for whoever has the token. */
  readonly actor?: string | null;
  readonly timeoutMilliseconds?: number;
  readonly maxBytes?: number;
}

/** A client of the admin API. No failure holds the token. */
export class AdminClient {
  readonly #access: Required<AdminAccess>;

  constructor(access: AdminAccess) {
    this.#access = { actor: null, timeoutMilliseconds: 10_000, maxBytes: 16 * 1024 * 1024, ...access };
  }

  /**
   * @throws OperatorError
   * @throws WrongUsage for a query that the registry does not accept
   */
  async ask<Schema extends TSchema>(request: AdminRequest<Schema>): Promise<AdminAnswer<Static<Schema>>> {
    const isChange = request.method !== 'GET' && request.isRepeatable !== true;
    const address = this.#access.registry.href;
    const { response, text } = await this.#send(request, isChange);
    if (text === null) {
      const next = isChange ? nextAfter(isChange) : 'Ask for fewer at a time: --per-page.';
      throw new OperatorError(`The answer of ${address} is longer than ${this.#access.maxBytes} bytes. ${next}`);
    }
    const body = jsonIn(text);
    if (!response.ok) {
      const wrong = request.method === 'GET' ? wrongFilter(response, body, request.query ?? {}) : null;
      if (wrong !== null) throw wrong;
      throw refused(address, response, body, isChange);
    }
    const answer = successIn(body);
    if (answer !== null && Check(request.expects, answer.data)) return { ...answer, data: answer.data };
    throw notARegistry(address, response, isChange);
  }

  async #send(request: AdminRequest<TSchema>, isChange: boolean): Promise<{ response: Response; text: string | null }> {
    const { registry, token, actor, timeoutMilliseconds, maxBytes } = this.#access;
    const { method, body } = request;
    try {
      const response = await fetch(urlOf(registry, request), {
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
      throw unreachable(registry.href, error, { isChange, timeoutMilliseconds });
    }
  }
}

function urlOf(registry: URL, { path, query = {} }: AdminRequest<TSchema>): URL {
  const url = new URL(registry);
  url.pathname = [url.pathname.replace(/\/+$/, ''), ...path.map(encodeURIComponent)].join('/');
  for (const [name, value] of Object.entries(query)) if (value !== undefined) url.searchParams.set(name, value);
  return url;
}
