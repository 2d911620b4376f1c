import t from 'tap';
import { connect, exchangeBytes, liveKey, startTestGateway, startUpstream } from '../edge/harness.js';

// Two programs that disagree on where a request ends let a caller put one request into another's mouth. Each case is a
// published disagreement; the gateway answers it once, closes the connection, and carries nothing of it out.
const key = `Host: localhost\r\nx-api-key: ${liveKey}\r\n`;
/** What an attacker hides: a payout that would be carried out if it were read as a request. */
const hidden = `POST /v1/payouts HTTP/1.1\r\n${key}Content-Length: 2\r\n\r\n{}`;

function post(framing: string, body: string): string {
  return `POST /v1/transactions HTTP/1.1\r\n${key}${framing}\r\n${body}`;
}

const chunks = `0\r\n\r\n${hidden}`;
const refused: readonly (readonly [string, string])[] = [
  ['CL.TE', post('Content-Length: 6\r\nTransfer-Encoding: chunked\r\n', chunks)],
  ['TE.CL', post('Transfer-Encoding: chunked\r\nContent-Length: 6\r\n', chunks)],
  ['CL.CL, different', post('Content-Length: 2\r\nContent-Length: 4\r\n', `{}${hidden}`)],
  ['CL.CL, the same twice', post('Content-Length: 2\r\nContent-Length: 2\r\n', `{}${hidden}`)],
  ['CL as a list', post('Content-Length: 2, 2\r\n', `{}${hidden}`)],
  ['CL with a sign', post('Content-Length: +2\r\n', `{}${hidden}`)],
  ['CL below zero', post('Content-Length: -2\r\n', `{}${hidden}`)],
  ['CL in hexadecimal', post('Content-Length: 0x2\r\n', `{}${hidden}`)],
  ['CL with a fraction', post('Content-Length: 2.0\r\n', `{}${hidden}`)],
  // CVE-2024-27982 (Node): a blank before it, and Content-Length was not seen.
  ['CL behind a blank', post(' Content-Length: 2\r\n', `{}${hidden}`)],
  ['CL with a blank inside', post('Content-Length: 2 2\r\n', `{}${hidden}`)],
  // HAProxy CVE-2023-40225: an empty one was passed on as it was.
  ['CL, empty', post('Content-Length: \r\n', `{}${hidden}`)],
  ['CL beyond 64 bits', post('Content-Length: 18446744073709551618\r\n', `{}${hidden}`)],
  // TE.TE: one of two readers is led to overlook the header.
  ['TE: xchunked', post('Transfer-Encoding: xchunked\r\n', chunks)],
  ['TE: chunked, identity', post('Transfer-Encoding: chunked, identity\r\n', chunks)],
  ['TE: identity, chunked', post('Transfer-Encoding: identity, chunked\r\n', chunks)],
  ['TE: gzip, chunked', post('Transfer-Encoding: gzip, chunked\r\n', chunks)],
  ['TE twice', post('Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n', chunks)],
  ['TE twice, once unknown', post('Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n', chunks)],
  // CVE-2021-22959 (llhttp): a blank between a name and its colon.
  ['TE with a tab in front of the colon', post('Transfer-Encoding\t: chunked\r\n', chunks)],
  ['TE with a blank in front of the colon', post('Transfer-Encoding : chunked\r\n', chunks)],
  ['TE behind a vertical tab', post('Transfer-Encoding:\u000bchunked\r\n', chunks)],
  ['TE in quotes', post('Transfer-Encoding: "chunked"\r\n', chunks)],
  ['TE with a parameter', post('Transfer-Encoding: chunked;a=b\r\n', chunks)],
  ['TE, empty', post('Transfer-Encoding: \r\n', chunks)],
  // CVE-2022-32213 (llhttp): a coding that only contains the word.
  ['TE: chunkedchunked', post('Transfer-Encoding: chunkedchunked\r\n', chunks)],
  // CVE-2022-32214 and CVE-2022-35256 (llhttp): a header that ends with a bare LF or CR.
  ['a bare LF behind a header', post('X: y\nTransfer-Encoding: chunked\r\n', chunks)],
  // CVE-2023-30589 (Node): CR alone ended a header.
  ['a bare CR within a header', post('X: y\rTransfer-Encoding: chunked\r\n', chunks)],
  ['a bare LF at the end of the head', `POST /v1/transactions HTTP/1.1\r\n${key}Content-Length: 2\r\n\n{}${hidden}`],
  ['a request line that ends with a bare LF', `GET /v1/transactions HTTP/1.1\n${key}\r\n`],
  // CVE-2022-32215 (llhttp): a folded header, read by one as its own line.
  ['TE, folded', post('Transfer-Encoding:\r\n chunked\r\n', chunks)],
  ['a folded header', post('X: y\r\n Transfer-Encoding: chunked\r\n', chunks)],
  ['a folded header with a tab', post('X: y\r\n\tContent-Length: 2\r\n', `{}${hidden}`)],
  ['a fold in front of the first header', `GET /v1/transactions HTTP/1.1\r\n X: y\r\n${key}\r\n`],
  // CVE-2021-22960, CVE-2025-22871 (Go): bare LF in a chunk's line; extensions that hide a line end.
  ['a chunk size that ends with a bare LF', post('Transfer-Encoding: chunked\r\n', `2\n{}\r\n${chunks}`)],
  ['a chunk extension with a bare LF', post('Transfer-Encoding: chunked\r\n', `2;a\nxx\r\n{}\r\n${chunks}`)],
  ['a chunk extension with a bare CR', post('Transfer-Encoding: chunked\r\n', `2;a\rxx\r\n{}\r\n${chunks}`)],
  ['a chunk without its line end', post('Transfer-Encoding: chunked\r\n', `2\r\n{}0\r\n\r\n${hidden}`)],
  ['a chunk size with 0x', post('Transfer-Encoding: chunked\r\n', `0x2\r\n{}\r\n${chunks}`)],
  ['a chunk size with a sign', post('Transfer-Encoding: chunked\r\n', `+2\r\n{}\r\n${chunks}`)],
  ['a chunk size behind a blank', post('Transfer-Encoding: chunked\r\n', ` 2\r\n{}\r\n${chunks}`)],
  ['a chunk size beyond 64 bits', post('Transfer-Encoding: chunked\r\n', `10000000000000002\r\n{}\r\n${chunks}`)],
  ['a chunk size with a blank inside', post('Transfer-Encoding: chunked\r\n', `2 2\r\n{}\r\n${chunks}`)],
  // CVE-2019-9900 (Envoy): NUL ends a text for whoever is written in C.
  ['NUL in a value', post('X: a\0b\r\nContent-Length: 2\r\n', `{}${hidden}`)],
  ['NUL in a name', post('X\0: a\r\nContent-Length: 2\r\n', `{}${hidden}`)],
  // HAProxy CVE-2023-25725: a header without a name hid those behind it.
  ['a name of nothing', post(': a\r\nContent-Length: 2\r\n', `{}${hidden}`)],
  ['a name with a bracket', post('X(: a\r\nContent-Length: 2\r\n', `{}${hidden}`)],
  ['a header without a colon', post('X-Without\r\nContent-Length: 2\r\n', `{}${hidden}`)],
  // RFC 9112 6.1: HTTP/1.0 has no chunks; what such a request means, each program decides for itself.
  [
    'TE on HTTP/1.0',
    `POST /v1/transactions HTTP/1.0\r\n${key}Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n${chunks}`,
  ],
  ['HTTP/2.0 on a plain line', `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${hidden}`],
  ['HTTP/2.0', `GET /v1/transactions HTTP/2.0\r\n${key}\r\n${hidden}`],
  ['HTTP/1.2', `GET /v1/transactions HTTP/1.2\r\n${key}\r\n${hidden}`],
  ['http in small letters', `GET /v1/transactions http/1.1\r\n${key}\r\n${hidden}`],
  ['no version', `GET /v1/transactions\r\n\r\n${hidden}`],
  ['a blank in the target', `GET /v1/trans actions HTTP/1.1\r\n${key}\r\n${hidden}`],
  ['two Hosts', `GET /v1/transactions HTTP/1.1\r\n${key}Host: other.example\r\n\r\n`],
  ['a Host list', `GET /v1/transactions HTTP/1.1\r\nHost: a, b\r\nx-api-key: ${liveKey}\r\n\r\n`],
  ['another host in the target', `GET https://other.example/v1/transactions HTTP/1.1\r\n${key}\r\n`],
];

t.test('a request that two programs would end at different places is refused, and its connection closed', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  for (const [name, bytes] of refused) {
    gateway.lines.length = 0;
    upstream.seen.length = 0;
    const received = await exchangeBytes(connect(gateway.https, gateway.ca), bytes);
    const statuses = [...received.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => status);
    t.same(statuses, ['400'], name);
    t.match(received, /\r\n\r\n\{"success":false,"message":"[^"]+","data":null\}$/, `${name}: in the envelope`);
    t.match(received, /\r\nconnection: close\r\n/i, `${name}: and the last answer of its connection`);
    t.same(upstream.seen, [], `${name}: nothing is carried out`);
    const id = /\r\nx-request-id: (\S+)/i.exec(received)?.[1];
    const ids = gateway.lines.map((line) => (line.http as { request: { id: string } }).request.id);
    t.equal(ids.filter((one) => one === id).length, 1, `${name}: one line for the one answer`);
  }
  t.same(gateway.internalErrors, []);
});
