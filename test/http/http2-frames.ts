import type { Socket } from 'node:net';
import tls from 'node:tls';
import type { TLSSocket } from 'node:tls';

/** RFC 9113 6: the types of frames. */
const frameTypes = {
  data: 0,
  headers: 1,
  priority: 2,
  rstStream: 3,
  settings: 4,
  pushPromise: 5,
  ping: 6,
  goaway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const;

export type FrameType = keyof typeof frameTypes;
export const endStream = 0x1;
export const endHeaders = 0x4;
const typeNames = Object.keys(frameTypes) as FrameType[];

/** A frame as it came. */
export interface Frame {
  readonly type: FrameType;
  readonly flags: number;
  readonly stream: number;
  readonly payload: Buffer;
}

/** A frame as bytes, whatever it says: tests send what no client library would. */
export function frame(type: FrameType, flags: number, stream: number, payload: Buffer = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(frameTypes[type], 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** A header list as HPACK literals, never indexed and not Huffman coded (RFC 7541 6.2.3): each byte as it is given. */
export function headerBlock(fields: readonly (readonly [string, string])[]): Buffer {
  return Buffer.concat(
    fields.map(([name, value]) => Buffer.concat([Buffer.from([0x10]), literal(name), literal(value)])),
  );
}

function literal(text: string): Buffer {
  const bytes = Buffer.from(text, 'latin1');
  if (bytes.length < 127) return Buffer.concat([Buffer.from([bytes.length]), bytes]);
  const lengths = [127];
  let rest = bytes.length - 127;
  for (; rest >= 128; rest = Math.floor(rest / 128)) lengths.push((rest % 128) + 128);
  return Buffer.concat([Buffer.from([...lengths, rest]), bytes]);
}

/** The frames of a header list that ends its stream: HEADERS and, behind 16,384 bytes, CONTINUATION. */
export function headersFrames(stream: number, flags: number, fields: readonly (readonly [string, string])[]): Buffer {
  const block = headerBlock(fields);
  const parts = Array.from({ length: Math.ceil(block.length / 16_384) }, (_, index) =>
    block.subarray(index * 16_384, (index + 1) * 16_384),
  );
  return Buffer.concat(
    parts.map((part, index) => {
      const last = index === parts.length - 1 ? endHeaders : 0;
      return index === 0 ? frame('headers', flags | last, stream, part) : frame('continuation', last, stream, part);
    }),
  );
}

export function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

/** The pseudo-headers of a request, in their order, and more fields. */
export function requestFields(
  method: string,
  path: string,
  more: readonly (readonly [string, string])[] = [],
): (readonly [string, string])[] {
  return [[':method', method], [':scheme', 'https'], [':authority', 'localhost'], [':path', path], ...more];
}

export const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1');

/** A bare HTTP/2 connection: it sends what it is told, answers SETTINGS if asked to, and notes every frame. */
export class FrameConnection {
  readonly frames: Frame[] = [];
  /** Whether the peer has closed the connection. */
  closed = false;
  readonly socket: TLSSocket;
  #buffered = Buffer.alloc(0);
  #waiting: (() => void)[] = [];

  /** @param below a connection that is there already, instead of a new one to the port */
  constructor(port: number, ca: string, settings: Buffer = Buffer.alloc(0), below?: Socket) {
    const address = below === undefined ? { port, host: '127.0.0.1' } : { socket: below };
    this.socket = tls.connect({ ...address, ca, servername: 'localhost', ALPNProtocols: ['h2'] });
    this.socket.on('error', () => undefined);
    this.socket.on('data', (chunk: Buffer) => {
      this.#take(chunk);
    });
    this.socket.on('close', () => {
      this.closed = true;
      this.#wake();
    });
    this.socket.write(Buffer.concat([preface, frame('settings', 0, 0, settings)]));
  }

  send(...bytes: Buffer[]): void {
    if (this.socket.writable) this.socket.write(Buffer.concat(bytes));
  }

  /** Asks with a request of HEADERS alone. */
  ask(stream: number, method: string, path: string, more: readonly (readonly [string, string])[] = []): void {
    this.send(headersFrames(stream, endStream, requestFields(method, path, more)));
  }

  /** Resolves when what is waited for holds; it is looked at whenever a frame comes and when the connection ends. */
  async until(holds: () => boolean): Promise<void> {
    while (!holds()) {
      if (this.closed) throw new Error(`the connection ended first, after ${JSON.stringify(this.summary())}`);
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  async untilClosed(): Promise<void> {
    while (!this.closed) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  of(type: FrameType, stream?: number): Frame[] {
    return this.frames.filter((one) => one.type === type && (stream === undefined || one.stream === stream));
  }

  /** The error code of the peer's last GOAWAY; null where there was none. */
  goaway(): number | null {
    return this.of('goaway').at(-1)?.payload.readUInt32BE(4) ?? null;
  }

  /** The error code with which the peer reset a stream; null where it did not. */
  reset(stream: number): number | null {
    return this.of('rstStream', stream)[0]?.payload.readUInt32BE(0) ?? null;
  }

  /** Whether a stream is over: ended, or reset. */
  isOver(stream: number): boolean {
    return this.frames.some(
      (one) =>
        one.stream === stream &&
        (one.type === 'rstStream' ||
          ((one.type === 'headers' || one.type === 'data') && (one.flags & endStream) !== 0)),
    );
  }

  body(stream: number): string {
    return Buffer.concat(this.of('data', stream).map(({ payload }) => payload)).toString('latin1');
  }

  summary(): string[] {
    return this.frames.map(({ type, stream, flags }) => `${type} ${stream} ${flags}`);
  }

  #take(chunk: Buffer): void {
    this.#buffered = Buffer.concat([this.#buffered, chunk]);
    while (this.#buffered.length >= 9) {
      const length = this.#buffered.readUIntBE(0, 3);
      if (this.#buffered.length < 9 + length) break;
      this.frames.push({
        type: typeNames[this.#buffered.readUInt8(3)] ?? 'data',
        flags: this.#buffered.readUInt8(4),
        stream: this.#buffered.readUInt32BE(5) & 0x7fffffff,
        payload: this.#buffered.subarray(9, 9 + length),
      });
      this.#buffered = this.#buffered.subarray(9 + length);
    }
    this.#wake();
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }
}
