import { type Dispatcher, request } from 'undici';
import { ExitListRefused, maxListBytes, type SourceContent, type Validators } from './exit-source.js';
import { decodeList } from './parse-list.js';

/** How a list is fetched. */
export interface FetchOptions {
  readonly dispatcher: Dispatcher;
  /** Aborted when the time is over, or the process ends. */
  readonly signal: AbortSignal;
}

const maxRedirects = 3;
const redirects: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);

/**
 * Fetches a list, or hears that it has not changed.
 * @param known validators of the list that is there already; null where there is none
 * @throws ExitListRefused
 */
export async function fetchList(url: URL, known: Validators | null, options: FetchOptions): Promise<SourceContent> {
  let at = url;
  for (let hops = 0; ; hops += 1) {
    const response = await ask(at, known, options);
    if (!redirects.has(response.statusCode))
      return await contentOf(response, Object.keys(conditionsOf(known)).length > 0);
    discard(response);
    if (hops === maxRedirects) {
      throw new ExitListRefused('bad_answer', `its server redirects more than ${maxRedirects} times`);
    }
    at = redirectTarget(at, response.headers.location);
  }
}

async function ask(
  url: URL,
  known: Validators | null,
  { dispatcher, signal }: FetchOptions,
): Promise<Dispatcher.ResponseData> {
  try {
    return await request(url, {
      dispatcher,
      method: 'GET',
      signal,
      headers: {
        'user-agent': 'merchant-gateway',
        'accept-encoding': 'identity',
        ...conditionsOf(known),
      },
    });
  } catch (error) {
    throw new ExitListRefused('unreachable', `it cannot be fetched: ${reasonOf(error)}`, { cause: error });
  }
}

function conditionsOf(known: Validators | null): Record<string, string> {
  const { etag = null, lastModified = null } = known ?? {};
  return {
    ...(etag === null ? {} : { 'if-none-match': etag }),
    ...(lastModified === null ? {} : { 'if-modified-since': lastModified }),
  };
}

async function contentOf(response: Dispatcher.ResponseData, conditional: boolean): Promise<SourceContent> {
  const { statusCode, headers } = response;
  const problem = refusalOf(response, conditional);
  if (problem !== null) {
    discard(response);
    throw problem;
  }
  if (statusCode === 304) {
    discard(response);
    return 'unchanged';
  }
  const text = decodeList(await readBody(response));
  // An answer that ends with its connection may be the first half of one.
  const framed = headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined;
  if (!framed && !/[\n}]\s*$/.test(text)) {
    throw new ExitListRefused('cut_off', 'its last line is not ended, and its server did not say how long it is');
  }
  return { text, etag: single(headers.etag), lastModified: single(headers['last-modified']), writtenAt: null };
}

/** What is wrong with an answer before a byte of it is read; null where nothing is. */
function refusalOf({ statusCode, headers }: Dispatcher.ResponseData, conditional: boolean): ExitListRefused | null {
  if (statusCode === 304 && conditional) return null;
  if (statusCode !== 200) return new ExitListRefused('bad_answer', `its server answers with the status ${statusCode}`);
  const encoding = single(headers['content-encoding']) ?? 'identity';
  if (encoding.toLowerCase() !== 'identity') {
    return new ExitListRefused('bad_answer', 'its server answers in an encoding that was not asked for');
  }
  if (/^\s*text\/html\b/i.test(single(headers['content-type']) ?? '')) {
    return new ExitListRefused('html', 'its server answers with an HTML page');
  }
  return Number(headers['content-length'] ?? 0) > maxListBytes ? tooLarge() : null;
}

async function readBody(response: Dispatcher.ResponseData): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let length = 0;
  try {
    for await (const chunk of response.body as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      length += chunk.length;
      if (length > maxListBytes) throw tooLarge();
    }
  } catch (error) {
    if (error instanceof ExitListRefused) throw error;
    throw new ExitListRefused('cut_off', `its answer broke off: ${reasonOf(error)}`, { cause: error });
  }
  return Buffer.concat(chunks);
}

function tooLarge(): ExitListRefused {
  return new ExitListRefused('too_large', `it is larger than ${maxListBytes} bytes`);
}

/** Gives up what is left of an answer, and with it the connection. */
function discard({ body }: Dispatcher.ResponseData): void {
  body.on('error', () => undefined).destroy();
}

function single(value: string | string[] | undefined): string | null {
  return typeof value === 'string' && value.length <= 256 ? value : null;
}

/** A code, such as ECONNREFUSED: a whole message could hold what is secret in a URL. */
function reasonOf(error: unknown): string {
  if (error instanceof Error && error.name === 'TimeoutError') return 'it takes too long';
  const code = (error as NodeJS.ErrnoException).code;
  return typeof code === 'string' ? code : error instanceof Error ? error.name : 'unknown reason';
}

/**
 * Where a redirect leads: to http or https, never with a user, and from https to https alone, because on a plain
 * connection anybody on the way could write the list.
 * @throws ExitListRefused
 */
function redirectTarget(from: URL, location: string | string[] | undefined): URL {
  if (typeof location !== 'string' || !URL.canParse(location, from.href)) {
    throw new ExitListRefused('bad_answer', 'its server redirects to no address');
  }
  const target = new URL(location, from);
  const secure = target.protocol === 'https:';
  if (!secure && (from.protocol === 'https:' || target.protocol !== 'http:')) {
    throw new ExitListRefused('bad_answer', 'its server redirects away from https');
  }
  if (target.username !== '' || target.password !== '') {
    throw new ExitListRefused('bad_answer', 'its server redirects to an address with a user');
  }
  return target;
}
