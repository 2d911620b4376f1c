import { endHeaders, endStream, frame, headerBlock, headersFrames, uint32 } from '../http/http2-frames.js';
import type { FrameType } from '../http/http2-frames.js';
import { forged } from './http1-cases.js';
import type { Random } from './random.js';

type Field = readonly [string, string];

const methods = ['GET', 'GET', 'POST', 'PUT', 'HEAD', 'OPTIONS', 'CONNECT', 'TRACE', 'PRI', 'get', 'G@T', ''];
const paths = [
  ...['/v1/transactions', '/v1/transactions', '/v1/payouts?a=b', '/v1/dev/../payouts', '*', '', '/', '//', 'x'],
  ...['/v1/%2e%2e/payouts', '/v1/a;b', '/v1/%00', '/v1/é', '/v1/a b', '/v1/a\0b', '/v1/a\r\nb', 'https://localhost/v1'],
];
const oddFields: readonly Field[] = [
  ...([
    ['connection', 'close'],
    ['connection', 'x-api-key'],
    ['keep-alive', '1'],
    ['upgrade', 'h2c'],
  ] as const),
  ...([
    ['transfer-encoding', 'chunked'],
    ['te', 'gzip'],
    ['te', 'trailers'],
    ['trailer', 'x-api-key'],
  ] as const),
  ...([
    ['host', 'localhost'],
    ['host', 'other.example'],
    ['X-Upper', '1'],
    ['x y', '1'],
    ['', ''],
    ['x', 'a\0b'],
  ] as const),
  ...([
    ['x', 'a\r\nx-merchant-id: forged'],
    ['x\r\ny', '1'],
    [':path', '/v1/payouts'],
    [':status', '200'],
  ] as const),
  ...([
    [':protocol', 'websocket'],
    [':authority', 'other'],
    ['content-length', '2'],
    ['content-length', '-1'],
  ] as const),
  ...([
    ['content-length', '99999999'],
    ['expect', '100-continue'],
    ['cookie', 'a=b'],
    ['x-api-key', ''],
  ] as const),
  ...([
    ['origin', 'https://a.onion'],
    ['user-agent', '\u009b31m'],
    ['big', 'x'.repeat(17_000)],
  ] as const),
];
const types: readonly FrameType[] = [
  ...(['data', 'headers', 'priority', 'rstStream', 'settings', 'pushPromise', 'ping', 'goaway'] as const),
  ...(['windowUpdate', 'continuation'] as const),
];
/** Payloads that a frame of some type takes. */
const payloads = [
  Buffer.alloc(0),
  Buffer.alloc(4),
  Buffer.alloc(5),
  uint32(1),
  uint32(8),
  Buffer.alloc(6),
  Buffer.alloc(8),
];

/**
 * Makes what is written to one connection behind its preface and settings: some requests, whole or broken, and frames of
 * all sorts between them.
 * @param key a valid key for all of them; null for cases in which there is none
 */
export function http2Case(random: Random, key: string | null): Buffer[] {
  if (random.oneIn(20)) return [Buffer.from(random.bytes(1 + random.below(400)), 'latin1')];
  const frames: Buffer[] = [];
  for (let stream = 1, count = 1 + random.below(4); count > 0; count -= 1, stream += 2) {
    frames.push(...request(random, random.oneIn(12) ? random.below(8) : stream, key));
    while (random.oneIn(3)) frames.push(anyFrame(random));
  }
  if (!random.oneIn(4)) return frames;
  const bytes = Buffer.concat(frames);
  for (let count = 1 + random.below(3); count > 0; count -= 1) bytes[random.below(bytes.length)] = random.below(256);
  const cut = random.below(bytes.length);
  return [bytes.subarray(0, cut), bytes.subarray(cut)];
}

function request(random: Random, stream: number, key: string | null): Buffer[] {
  const isWhole = random.oneIn(2);
  const method = isWhole ? random.pick(['GET', 'POST']) : random.pick(methods);
  const fields: Field[] = [
    [':method', method],
    [':scheme', isWhole ? 'https' : random.pick(['https', 'http', 'x', ''])],
    [':authority', isWhole ? 'localhost' : random.pick(['localhost', 'a@localhost', 'a b', '', 'a.onion'])],
    [':path', isWhole ? '/v1/transactions' : random.pick(paths)],
  ];
  if (key !== null) fields.push(['x-api-key', key]);
  else if (!random.oneIn(3)) fields.push(['x-api-key', random.pick(['svc_live_guess', 'svc_test_guess', 'x', ''])]);
  while (random.oneIn(2)) fields.push([random.pick(forged).toLowerCase(), 'forged']);
  while (!isWhole && random.oneIn(2)) fields.splice(random.below(fields.length + 1), 0, random.pick(oddFields));
  if (!isWhole && random.oneIn(4)) fields.splice(random.below(fields.length), 1);
  const body = method === 'GET' && isWhole ? '' : random.pick(['', '{}', '{"amount":1}']);
  if (body === '') return [head(random, stream, endStream, fields)];
  const ends = random.oneIn(8) ? 0 : endStream;
  return [head(random, stream, 0, fields), frame('data', ends, stream, Buffer.from(body))];
}

/** A header list in one frame, or in pieces; from time to time in a compression that is none. */
function head(random: Random, stream: number, flags: number, fields: readonly Field[]): Buffer {
  if (!random.oneIn(8)) return headersFrames(stream, flags, fields);
  const block = Buffer.concat([headerBlock(fields), Buffer.from(random.bytes(random.below(3)), 'latin1')]);
  const cut = random.below(block.length);
  return Buffer.concat([
    frame('headers', flags, stream, block.subarray(0, cut)),
    ...(random.oneIn(6) ? [anyFrame(random)] : []),
    frame('continuation', random.oneIn(6) ? 0 : endHeaders, stream, block.subarray(cut)),
  ]);
}

function anyFrame(random: Random): Buffer {
  const payload = random.oneIn(3) ? Buffer.from(random.bytes(random.below(40)), 'latin1') : random.pick(payloads);
  return frame(random.pick(types), random.oneIn(2) ? 0 : random.below(256), random.below(8), payload);
}
