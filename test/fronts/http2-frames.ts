import type { TLSSocket } from 'node:tls';

/** The frame types of RFC 9113 section 6, by number. */
const frameTypes = ['data', 'headers', 'priority', 'rstStream', 'settings', 'pushPromise', 'ping', 'goaway'] as const;
const [data, headers, settings] = [0, 1, 4];
const [endStream, endHeaders, acknowledge] = [0x1, 0x4, 0x1];
const longestFrame = 16_384;

/** A header list: names and values, one Latin-1 character per byte. */
export type Fields = readonly (readonly [string, string])[];

interface Frame {
  readonly type: string;
  readonly flags: number;
  readonly stream: number;
  readonly payload: Buffer;
}

function frame(type: number, flags: number, stream: number, payload: Buffer = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** HPACK literals, never indexed and without Huffman coding (RFC 7541 section 6.2.3): each byte stays unchanged. */
function headerBlock(fields: Fields): Buffer {
  const literals = fields.map(([name, value]) => Buffer.concat([Buffer.from([0x10]), literal(name), literal(value)]));
  return Buffer.concat(literals);
}

function literal(text: string): Buffer {
  const bytes = Buffer.from(text, 'latin1');
  if (bytes.length < 127) return Buffer.concat([Buffer.from([bytes.length]), bytes]);
  const lengths = [127];
  let rest = bytes.length - 127;
  for (; rest >= 128; rest = Math.floor(rest / 128)) lengths.push((rest % 128) + 128);
  return Buffer.concat([Buffer.from([...lengths, rest]), bytes]);
}

/** The outcome of a request: the body of its response, or a reset. */
export type Ending = { readonly kind: 'response'; readonly body: string } | { readonly kind: 'reset' };

/** A minimal HTTP/2 connection for one request: it can send header values that no client library would send. */
class FrameConnection {
  readonly #frames: Frame[] = [];
  readonly #socket: TLSSocket;
  #buffered = Buffer.alloc(0);
  readonly #ended: Promise<Ending>;

  constructor(socket: TLSSocket) {
    this.#socket = socket;
    this.#ended = new Promise((resolve) => {
      this.#socket.on('error', () => undefined);
      this.#socket.on('close', () => {
        resolve({ kind: 'reset' });
      });
      this.#socket.on('data', (chunk: Buffer) => {
        this.#take(chunk);
        const ending = this.#ending();
        if (ending !== null) resolve(ending);
      });
    });
    this.#socket.write(Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), frame(settings, 0, 0)]));
  }

  async request(fields: Fields, body: string): Promise<Ending> {
    const block = headerBlock(fields);
    if (block.length > longestFrame) throw new Error('a header list of one frame is sent, no longer one');
    const end = body === '' ? endStream : 0;
    const frames = [frame(headers, endHeaders | end, 1, block)];
    const bytes = Buffer.from(body, 'latin1');
    for (let from = 0; from < bytes.length; from += longestFrame) {
      const part = bytes.subarray(from, from + longestFrame);
      frames.push(frame(data, from + longestFrame >= bytes.length ? endStream : 0, 1, part));
    }
    this.#socket.write(Buffer.concat(frames));
    const ending = await this.#ended;
    this.#socket.destroy();
    return ending;
  }

  /** The outcome of the request; null while it is in progress. */
  #ending(): Ending | null {
    const own = this.#frames.filter(({ stream }) => stream === 1);
    const over = own.some(({ type, flags }) => (type === 'headers' || type === 'data') && (flags & endStream) !== 0);
    if (over) {
      const payloads = own.filter(({ type }) => type === 'data').map(({ payload }) => payload);
      return { kind: 'response', body: Buffer.concat(payloads).toString('latin1') };
    }
    const broken = own.some(({ type }) => type === 'rstStream') || this.#frames.some(({ type }) => type === 'goaway');
    return broken ? { kind: 'reset' } : null;
  }

  #take(chunk: Buffer): void {
    this.#buffered = Buffer.concat([this.#buffered, chunk]);
    while (this.#buffered.length >= 9) {
      const length = this.#buffered.readUIntBE(0, 3);
      if (this.#buffered.length < 9 + length) break;
      const [type = 0, flags = 0] = this.#buffered.subarray(3, 5);
      const stream = this.#buffered.readUInt32BE(5) & 0x7fffffff;
      const payload = this.#buffered.subarray(9, 9 + length);
      this.#frames.push({ type: frameTypes[type] ?? 'other', flags, stream, payload });
      if (type === settings && flags === 0) this.#socket.write(frame(settings, acknowledge, 0));
      this.#buffered = this.#buffered.subarray(9 + length);
    }
  }
}

/** Sends one request byte for byte on a new connection. */
export function sendFrames(
  socket: TLSSocket,
  method: string,
  path: string,
  fields: Fields,
  body = '',
): Promise<Ending> {
  const pseudo: Fields = [
    [':method', method],
    [':scheme', 'https'],
    [':authority', 'api.example'],
    [':path', path],
  ];
  const length: Fields = body === '' ? [] : [['content-length', String(body.length)]];
  return new FrameConnection(socket).request([...pseudo, ...length, ...fields], body);
}
