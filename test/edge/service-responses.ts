import fc from 'fast-check';

/** Encodes each character (Latin-1) as one byte. */
export function bytesOf(text: string): Buffer {
  return Buffer.from(text, 'latin1');
}

/** Splits bytes at relative positions from 0 to 1. */
export function cut(bytes: Buffer, places: readonly number[]): Buffer[] {
  const at = [0, ...places.map((place) => Math.floor(place * bytes.length)).sort((a, b) => a - b), bytes.length];
  return at.slice(1).map((end, index) => bytes.subarray(at[index], end));
}

/** Random positions at which to split. */
export const places = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 8 });

/** The parts of a well-formed response. */
export interface Written {
  readonly status: number;
  readonly fields: readonly (readonly [string, string])[];
  readonly pieces: readonly string[];
  readonly framing: 'length' | 'chunked' | 'close';
  readonly extension: string;
  readonly trailer: string;
  readonly interim: number;
}

/** Serializes the response as a service would. */
export function bytesWritten({ status, fields, pieces, framing, extension, trailer, interim }: Written): Buffer {
  const body = pieces.join('');
  const chunks = pieces.map((piece) => `${piece.length.toString(16)}${extension}\r\n${piece}\r\n`).join('');
  const framed = {
    length: [`Content-Length: ${body.length}\r\n`, body],
    chunked: ['Transfer-Encoding: chunked\r\n', `${chunks}0${extension}\r\n${trailer}\r\n`],
    close: ['Connection: close\r\n', body],
  }[framing];
  const lines = fields.map(([name, value]) => `${name}: ${value}\r\n`).join('');
  const head = `HTTP/1.1 ${status} Of a test\r\n${lines}${framed[0] ?? ''}\r\n`;
  return bytesOf('HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n'.repeat(interim) + head + (framed[1] ?? ''));
}

const latin1 = fc.string({ unit: fc.integer({ min: 0x20, max: 0xff }).map((code) => String.fromCharCode(code)) });

/** An arbitrary well-formed response. */
export const written: fc.Arbitrary<Written> = fc.record({
  status: fc.constantFrom(200, 201, 202, 400, 404, 500, 503),
  fields: fc.array(
    fc.tuple(
      fc.constantFrom(
        ...['X-A', 'x-a', 'Set-Cookie', 'ETag', 'Location', 'Content-Type', 'Date', 'Content-Language', '__proto__'],
        "!#$%&'*+-.^_`|~0",
      ),
      fc.oneof(fc.constant('the same'), latin1.map((value) => value.replaceAll('\x7f', '').trim())), // prettier-ignore
    ),
    { maxLength: 6 },
  ),
  pieces: fc.array(latin1.filter((piece) => piece !== ''), { maxLength: 5 }), // prettier-ignore
  framing: fc.constantFrom('length', 'chunked', 'close'),
  extension: fc.constantFrom('', ';a', ';a=b', ';a="b"'),
  trailer: fc.constantFrom('', 'X-Sum: 1\r\n'),
  interim: fc.integer({ min: 0, max: 2 }),
});
