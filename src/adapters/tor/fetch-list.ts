import { type Dispatcher, request } from 'undici';
import { connectionProblem } from '../checkpoints/connection-problem.js';
import { ExitListRejected, maxListBytes, type SourceContent, type Validators } from './exit-source.js';
import { decodeList } from './parse-list.js';

/** Options of a fetch. */
export interface FetchOptions {
  readonly dispatcher: Dispatcher;
  /** Aborts the fetch on timeout, or when the process ends. */
  readonly signal: AbortSignal;
}

const maxRedirects = 3;
const redirects: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);

/**
 * Fetches a list. Returns `unchanged` if the server reports that the stored list is still current.
 * @param known validators of the stored list; null if no list is stored
 * @throws ExitListRejected
 */
export async function fetchList(url: URL, known: Validators | null, options: FetchOptions): Promise<SourceContent> {
  let at = url;
  for (let hops = 0; ; hops += 1) {
    const response = await sendRequest(at, known, options);
    if (!redirects.has(response.statusCode))
      return await contentOf(response, Object.keys(conditionsOf(known)).length > 0);
    discard(response);
    if (hops === maxRedirects) {
      throw new ExitListRejected('bad_answer', `the server redirects more than ${maxRedirects} times`);
    }
    at = redirectTarget(at, response.headers.location);
  }
}

async function sendRequest(
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
    throw new ExitListRejected('unreachable', `the list cannot be fetched: ${connectionProblem(error)}`, {
      cause: error,
    });
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
  // Without Content-Length and Transfer-Encoding, a truncated list looks complete. A response without these headers
  // must therefore end with a line end or a closing brace.
  const framed = headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined;
  if (!framed && !/[\n}]\s*$/.test(text)) {
    throw new ExitListRejected(
      'cut_off',
      'the list may be truncated: its last line has no line end, and the server sent no Content-Length',
    );
  }
  return { text, etag: single(headers.etag), lastModified: single(headers['last-modified']), writtenAt: null };
}

/** Checks the status and headers of a response before the body is read. Returns null if they are acceptable. */
function refusalOf({ statusCode, headers }: Dispatcher.ResponseData, conditional: boolean): ExitListRejected | null {
  if (statusCode === 304 && conditional) return null;
  if (statusCode !== 200) return new ExitListRejected('bad_answer', `the server responded with status ${statusCode}`);
  const encoding = single(headers['content-encoding']) ?? 'identity';
  if (encoding.toLowerCase() !== 'identity') {
    return new ExitListRejected('bad_answer', 'the server used a content encoding that was not requested');
  }
  if (/^\s*text\/html\b/i.test(single(headers['content-type']) ?? '')) {
    return new ExitListRejected('html', 'the server responded with an HTML page');
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
    if (error instanceof ExitListRejected) throw error;
    throw new ExitListRejected('cut_off', `the response was cut off: ${connectionProblem(error)}`, { cause: error });
  }
  return Buffer.concat(chunks);
}

function tooLarge(): ExitListRejected {
  return new ExitListRejected('too_large', `the list is larger than ${maxListBytes} bytes`);
}

/** Discards the rest of a response by closing its connection. */
function discard({ body }: Dispatcher.ResponseData): void {
  body.on('error', () => undefined).destroy();
}

function single(value: string | string[] | undefined): string | null {
  return typeof value === 'string' && value.length <= 256 ? value : null;
}

/**
 * Returns the target of a redirect: http or https without user and password, and never http after https. On an
 * unencrypted connection, any attacker in the network could change the list.
 * @throws ExitListRejected
 */
function redirectTarget(from: URL, location: string | string[] | undefined): URL {
  if (typeof location !== 'string' || !URL.canParse(location, from.href)) {
    throw new ExitListRejected('bad_answer', 'the server redirects without a valid Location header');
  }
  const target = new URL(location, from);
  const secure = target.protocol === 'https:';
  if (!secure && (from.protocol === 'https:' || target.protocol !== 'http:')) {
    const expected =
      from.protocol === 'https:'
        ? 'from https to a protocol other than https'
        : 'to a protocol other than http and https';
    throw new ExitListRejected('bad_answer', `the server redirects ${expected}`);
  }
  if (target.username !== '' || target.password !== '') {
    throw new ExitListRejected('bad_answer', 'the server redirects to a URL with a user or a password');
  }
  return target;
}
