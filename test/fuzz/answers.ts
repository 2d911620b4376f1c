/** How long nothing may come before a connection is half-closed, in milliseconds. */
export const quietMilliseconds = 60;
/** What has not ended by then hangs. */
export const hangMilliseconds = 30_000;
/** What the gateway answers itself. */
export const envelope = /^\{"success":false,"message":"[A-Za-z0-9 ().-]+","data":null\}$/;
/** What the service answers. */
export const serviceBody = '{"success":true,"message":"OK","data":[]}';

/** One answer as it stands in what came over a connection. */
export interface Answer {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
}

/**
 * Reads the answers of a connection, one behind the other.
 * @throws Error where what came is no sequence of whole answers
 */
export function readAnswers(received: string): Answer[] {
  const answers: Answer[] = [];
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
    answers.push({ status, headers, body: rest.slice(0, length) });
    rest = rest.slice(length);
  }
  return answers;
}

/** To a HEAD request an answer has a length and no body: what follows then is the next answer or nothing. */
function bodyLength(headers: ReadonlyMap<string, string>, rest: string): number {
  const length = Number(headers.get('content-length') ?? 0);
  return rest === '' || rest.startsWith('HTTP/1.1 ') ? 0 : length;
}
