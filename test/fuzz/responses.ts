/** When a client has received no bytes for this many milliseconds, it half-closes its connection. */
export const quietMilliseconds = 60;
/** If a connection is still open after this many milliseconds, the tests report that it hangs. */
export const hangMilliseconds = 30_000;
/** The body of the gateway's own responses. */
export const envelope = /^\{"success":false,"message":"[A-Za-z0-9 ().-]+","data":null\}$/;
/** The body of the service's responses. */
export const serviceBody = '{"success":true,"message":"OK","data":[]}';

/** One response, parsed from the bytes of a connection. */
export interface ParsedResponse {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
}

/**
 * Parses the consecutive responses of a connection.
 * @throws Error if the bytes are not a sequence of complete responses
 */
export function parseResponses(received: string): ParsedResponse[] {
  const responses: ParsedResponse[] = [];
  let rest = received;
  while (rest !== '') {
    const end = rest.indexOf('\r\n\r\n');
    const [statusLine = '', ...lines] = rest.slice(0, end).split('\r\n');
    const status = Number(/^HTTP\/1\.1 (\d{3}) [\x20-\x7e]*$/.exec(statusLine)?.[1]);
    if (end === -1 || Number.isNaN(status)) throw new Error(`no answer: ${JSON.stringify(rest.slice(0, 200))}`);
    rest = rest.slice(end + 4);
    if (status === 100) continue;
    const headers = new Map(
      lines.map((line) => [line.split(': ', 1)[0]?.toLowerCase() ?? '', line.replace(/^[^:]*: /, '')]),
    );
    const length = bodyLength(headers, rest);
    responses.push({ status, headers, body: rest.slice(0, length) });
    rest = rest.slice(length);
  }
  return responses;
}

/**
 * Returns the length of the body at the start of `rest`. It is 0 for a response to HEAD, which has a content-length but
 * no body: the next response or the end follows directly.
 */
function bodyLength(headers: ReadonlyMap<string, string>, rest: string): number {
  const length = Number(headers.get('content-length') ?? 0);
  return rest === '' || rest.startsWith('HTTP/1.1 ') ? 0 : length;
}
