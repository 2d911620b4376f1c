import { once } from 'node:events';
import http from 'node:http';
import type { IncomingMessage } from 'node:http';
import fc from 'fast-check';
import t from 'tap';
import { ResponseParser } from '../../src/edge/http1/response-parser.js';
import type { ResponseHead } from '../../src/edge/http1/response-reader.js';
import { startBareUpstream } from '../edge/harness.js';
import { bytesOf, bytesWritten, cut, places, written } from '../edge/service-responses.js';

/** What a parser reported about the bytes of a connection. */
interface Parsed {
  readonly head: ResponseHead | null;
  readonly body: string;
  readonly isOver: boolean;
  readonly refused: string | null;
}

/**
 * Feeds the pieces of one response to a parser, and returns what the parser reports.
 * @param closes whether the connection ends after the last piece
 */
function read(pieces: readonly Buffer[], method = 'GET', closes = false): Parsed {
  const parsed = { head: null as ResponseHead | null, body: '', isOver: false, refused: null as string | null };
  const parser = new ResponseParser({
    onHead: (head) => (parsed.head = head),
    onData: (bytes) => (parsed.body += bytes.toString('latin1')),
    onEnd: () => (parsed.isOver = true),
  });
  parser.expect(method);
  try {
    for (const piece of pieces) {
      const lent = Buffer.from(piece);
      parser.take(lent);
      lent.fill('!'); // like the next read of a socket, which overwrites the same memory
    }
    if (closes) parser.end();
  } catch (error) {
    parsed.refused = (error as Error).message;
  }
  return parsed;
}

const ok = 'HTTP/1.1 200 OK\r\n';
const chunked = `${ok}Transfer-Encoding: chunked\r\n\r\n`;

/** A response and its interpretation; `method` and `closes` default to GET and false. */
type Understood = readonly [
  bytes: string,
  expected: Partial<Record<keyof Parsed, unknown>>,
  method?: string,
  closes?: boolean,
];

const understood: readonly Understood[] = [
  [`${ok}Content-Length: 2\r\n\r\nok`, { head: { statusCode: 200, framing: 2, keepsConnection: true }, body: 'ok' }],
  [`${ok}Content-Length: 0\r\n\r\n`, { head: { framing: 0, keepsConnection: true } }],
  ['HTTP/1.1 200 \r\ncontent-length: 1\r\n\r\na', { body: 'a' }],
  ['HTTP/1.1 200\r\ncontent-length: 1\r\n\r\na', { body: 'a' }],
  ['HTTP/1.1 204\r\n\r\n', { head: { statusCode: 204, framing: 0, keepsConnection: true } }],
  [`${chunked}2\r\nok\r\n0\r\n\r\n`, { head: { framing: 'chunked', keepsConnection: true }, body: 'ok' }],
  [`${chunked}0002 ;a="b;c"\r\nok\r\nA\r\n0123456789\r\n0;z\r\nX-Sum: 1\r\nX: 2\r\n\r\n`, { body: 'ok0123456789' }],
  [`${ok}\r\nall of it`, { head: { framing: 'close', keepsConnection: false }, body: 'all of it' }, 'GET', true],
  ['HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na', { head: { keepsConnection: false }, body: 'a' }],
  [
    'HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\na',
    { head: { keepsConnection: true }, body: 'a' },
  ],
  [`${ok}Connection: x, Close\r\nContent-Length: 0\r\n\r\n`, { head: { keepsConnection: false } }],
  [`${ok}Connection: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`, { head: { keepsConnection: false } }],
  [
    'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n' + `${ok}Content-Length: 1\r\n\r\na`,
    { head: { statusCode: 200, headers: ['content-length', '1'] }, body: 'a' },
  ],
  ['HTTP/1.1 101 Switching\r\n\r\n', { head: { statusCode: 101, framing: 0 } }],
  [
    `${ok}Set-Cookie: a=1\r\nx:\t b\xe9 c \t\r\nSET-COOKIE: b=2\r\nset-cookie:\r\nContent-Length: 0\r\n\r\n`,
    { head: { headers: ['set-cookie', ['a=1', 'b=2', ''], 'x', 'b\xe9 c', 'content-length', '0'] } },
  ],
  // RFC 9112 6.3: these responses have no body, even if a header announces one. The connection is closed if a body may
  // follow all the same.
  [`${ok}Content-Length: 2\r\n\r\n`, { head: { framing: 0, keepsConnection: false } }, 'HEAD'],
  [`${ok}\r\n`, { head: { framing: 0, keepsConnection: false } }, 'HEAD'],
  [chunked, { head: { framing: 0, keepsConnection: false } }, 'HEAD'],
  ['HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n', { head: { framing: 0, keepsConnection: false } }],
  ['HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n', { head: { framing: 0, keepsConnection: true } }],
  ['HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\n', { head: { framing: 0, keepsConnection: false } }],
  ['HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n', { head: { framing: 0, keepsConnection: false } }],
  ['HTTP/1.1 204 No\r\nContent-Length: 0\r\n\r\n', { head: { framing: 0, keepsConnection: true } }],
];

const hints: readonly (readonly [value: string, seconds: number | null])[] = [
  ['timeout=5', 5],
  ['max=100, Timeout=60', 60],
  ['timeout=0', 0],
  ['timeout=-1', null],
  ['timeout=1000000000', null],
  ['xtimeout=5', null],
  ['', null],
];

const refused: readonly (readonly [name: string, bytes: string, method?: string])[] = [
  ['two lengths', `${ok}Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc`],
  ['the same Content-Length twice', `${ok}Content-Length: 2\r\nContent-Length: 2\r\n\r\nab`],
  ['a list of Content-Length values', `${ok}Content-Length: 2, 2\r\n\r\nab`],
  ['Content-Length with a sign', `${ok}Content-Length: +2\r\n\r\nab`],
  ['a negative length', `${ok}Content-Length: -2\r\n\r\n`],
  ['an empty Content-Length', `${ok}Content-Length:\r\n\r\n`],
  ['Content-Length beyond safe integers', `${ok}Content-Length: 9007199254740993\r\n\r\n`],
  ['Content-Length and Transfer-Encoding', `${ok}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`],
  [
    'Transfer-Encoding and Content-Length, to a HEAD',
    `${ok}Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n`,
    'HEAD',
  ],
  ['another coding', `${ok}Transfer-Encoding: gzip, chunked\r\n\r\n`],
  ['chunks twice', `${ok}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n`],
  ['chunked encoding in HTTP/1.0', 'HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'],
  ['a folded line', `${ok}A: b\r\n c\r\n\r\n`],
  ['a space before a colon', `${ok}Content-Length : 2\r\n\r\n`],
  ['a line without a colon', `${ok}A\r\nB: c\r\n\r\n`],
  ['a header without a name', `${ok}: a\r\n\r\n`],
  ['NUL in a value', `${ok}A: b\0c\r\n\r\n`],
  ['CR in a value', `${ok}A: b\rContent-Length: 0\r\n\r\n`],
  ['LF in a value', `${ok}A: b\nContent-Length: 0\r\n\r\n`],
  ['CR in front of a line end', `${ok}A: b\r\r\n\r\n`],
  ['LF for line ends', 'HTTP/1.1 200 OK\nContent-Length: 0\n\n'],
  ['LF for the first line end', 'HTTP/1.1 200 OK\nContent-Length: 0\r\n'],
  ['an empty line before the status line', `\r\n${ok}Content-Length: 0\r\n\r\n`],
  ['another protocol', 'SSH-2.0-OpenSSH_9.2\r\n'],
  ['another version', 'HTTP/2 200 OK\r\n\r\n'],
  ['no status', 'HTTP/1.1 OK\r\n\r\n'],
  ['a status of two digits', 'HTTP/1.1 20 OK\r\n\r\n'],
  ['a status that begins with 0', 'HTTP/1.1 099 Odd\r\n\r\n'],
  ['a head over the limit', `${ok}A: ${'b'.repeat(20_000)}`],
  ['interim heads, one of them over the limit', `HTTP/1.1 100 C\r\n\r\nHTTP/1.1 103 E\r\nA: ${'b'.repeat(20_000)}`],
  ['a chunk size with a prefix', `${chunked}0x2\r\nok\r\n`],
  ['a chunk size with a sign', `${chunked}+2\r\nok\r\n`],
  ['a chunk size after a space', `${chunked} 2\r\nok\r\n`],
  ['an empty chunk size', `${chunked}\r\n`],
  ['a chunk extension without a size', `${chunked};a\r\n`],
  ['a chunk size beyond safe integers', `${chunked}fffffffffffff\r\n`],
  ['a chunk size that ends with LF', `${chunked}2\nok\r\n`],
  ['CR in an extension', `${chunked}2;a\rb\r\nok\r\n`],
  ['a chunk extension over the limit', `${chunked}2;${'a'.repeat(2_000)}`],
  ['a chunk longer than its size', `${chunked}2\r\nokk\r\n0\r\n\r\n`],
  ['a chunk that ends with LF', `${chunked}2\r\nok\n0\r\n\r\n`],
  ['trailers over the limit', `${chunked}0\r\n${`A: ${'b'.repeat(500)}\r\n`.repeat(40)}`],
  ['a trailer that ends with LF', `${chunked}0\r\nA: b\n\r\n`],
  ['bytes after a body', `${ok}Content-Length: 2\r\n\r\nokk`],
  ['another response after a body', `${ok}Content-Length: 2\r\n\r\nok${ok}Content-Length: 0\r\n\r\n`],
  ['an interim response after a body', `${ok}Content-Length: 2\r\n\r\nokHTTP/1.1 100 Continue\r\n\r\n`],
  ['bytes after the last chunk', `${chunked}0\r\n\r\n\r\n`],
  ['a body to a HEAD', `${ok}Content-Length: 2\r\n\r\nok`, 'HEAD'],
  ['a body of a 204', 'HTTP/1.1 204 No Content\r\n\r\nok'],
];

t.test('a response is interpreted as RFC 9112 defines', (t) => {
  for (const [bytes, expected, method, closes] of understood) {
    const parsed = read([bytesOf(bytes)], method, closes);
    const { body = '', ...others } = expected;
    t.equal(parsed.body, body, JSON.stringify(bytes));
    t.match(parsed, { isOver: true, refused: null, ...others }, JSON.stringify(bytes));
  }
  for (const [value, seconds] of hints) {
    const parsed = read([bytesOf(`${ok}Keep-Alive: ${value}\r\nContent-Length: 0\r\n\r\n`)]);
    t.equal(parsed.head?.keepAliveSeconds, seconds, value);
  }
  t.end();
});

t.test('an ambiguous response is refused at once', (t) => {
  for (const [name, bytes, method] of refused) t.type(read([bytesOf(bytes)], method).refused, 'string', name);
  t.end();
});

t.test('a truncated response is incomplete', (t) => {
  for (const bytes of [
    ok,
    'HTTP/1.1 100 Continue\r\n\r\n',
    `${ok}Content-Length: 3\r\n\r\nok`,
    `${chunked}2\r\nok\r\n`,
    `${chunked}2\r\nok\r\n0\r\n`,
    `${chunked}2\r\nok\r\n0\r\nA: b\r\n`,
  ]) {
    t.match(read([bytesOf(bytes)], 'GET', true), { isOver: false, refused: null }, JSON.stringify(bytes));
  }
  t.end();
});

t.test('unsolicited bytes are refused, also before the first request', (t) => {
  const fail = (): void => void t.fail('no request is outstanding');
  const parser = new ResponseParser({ onHead: fail, onData: fail, onEnd: fail });
  t.throws(() => {
    parser.take(bytesOf(`${ok}Content-Length: 0\r\n\r\n`));
  });
  t.equal(parser.end(), false);
  t.end();
});

t.test('a response is parsed alike for any packet boundaries', (t) => {
  const samples: readonly (readonly [bytes: string, method?: string | undefined, closes?: boolean | undefined])[] = [
    ...understood.map(([bytes, , method, closes]) => [bytes, method, closes] as const),
    ...refused.map(([, bytes, method]) => [bytes, method] as const),
  ];
  for (const [text, method, closes] of samples) {
    const bytes = bytesOf(text);
    // If the parser refuses a response that arrives in one piece, it must also refuse the pieces, though perhaps at
    // another byte. Any other response must have the same result in one piece and in several.
    const alike = (pieces: Buffer[]): boolean => {
      const [whole, cut] = [read([bytes], method, closes), read(pieces, method, closes)];
      if (whole.refused !== null) return cut.refused !== null;
      return JSON.stringify(whole) === JSON.stringify(cut);
    };
    t.ok(alike(Array.from(bytes, (byte) => Buffer.of(byte))), `byte by byte: ${JSON.stringify(text.slice(0, 100))}`);
    for (let at = 1; at < Math.min(bytes.length, 300); at += 1) {
      if (!alike([bytes.subarray(0, at), bytes.subarray(at)])) t.fail(`cut at ${at}: ${JSON.stringify(text)}`);
    }
    fc.assert(
      fc.property(places, (places) => alike(cut(bytes, places))),
      { numRuns: 20 },
    );
  }
  t.end();
});

t.test('a well-formed response is parsed as Node parses it, for any packet boundaries', async (t) => {
  let bytes: Buffer = Buffer.alloc(0);
  const url = await startBareUpstream(t, (socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => socket.end(bytes));
  });
  await fc.assert(
    fc.asyncProperty(written, places, async (sent, places) => {
      bytes = bytesWritten(sent);
      const [response] = (await once(http.get(url, { agent: false }), 'response')) as [IncomingMessage];
      let body = '';
      for await (const chunk of response.setEncoding('latin1')) body += String(chunk);
      const values = new Map<string, string[]>();
      for (let index = 0; index < response.rawHeaders.length; index += 2) {
        const name = (response.rawHeaders[index] ?? '').toLowerCase();
        values.set(name, [...(values.get(name) ?? []), response.rawHeaders[index + 1] ?? '']);
      }
      const parsed = read(cut(bytes, places), 'GET', true);
      const headers = [...values].flatMap(([name, each]) => [name, each.length === 1 ? each[0] : each]);
      const expected = { statusCode: response.statusCode, headers, body };
      return (
        parsed.isOver &&
        parsed.refused === null &&
        JSON.stringify({ statusCode: parsed.head?.statusCode, headers: parsed.head?.headers, body: parsed.body }) ===
          JSON.stringify(expected)
      );
    }),
    { numRuns: 200 },
  );
});
