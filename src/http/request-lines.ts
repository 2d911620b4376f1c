import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';

const cr = 13;
const lf = 10;
const blank = 32;
const headEnd = Buffer.from('\r\n\r\n');
const none = Buffer.alloc(0);

/**
 * Where the requests of a connection begin in what it sends, as Node's parser keeps only the number of a version, and
 * takes `GET / RTSP/1.1` for HTTP/1.1. A line that is not found where it has to be counts as one of another protocol.
 */
class RequestLines {
  /** What has come and is not passed yet, from `#at` on. */
  #bytes: Buffer = none;
  #at = 0;
  /** Where `#bytes` are kept together, with room for more of them. */
  #store: Buffer = none;
  /** What is left of a body, or of a chunk with its line end. */
  #left = 0;
  #part: 'head' | 'chunks' | 'trailers' = 'head';
  readonly #maxBytes: number;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Has to see bytes before Node's parser does. */
  take(bytes: Buffer): void {
    this.#bytes = this.#at < this.#bytes.length ? this.#behindLeft(bytes) : bytes;
    this.#at = 0;
    this.#passBody();
    if (this.#bytes.length - this.#at > this.#maxBytes + bytes.length) this.#letGo();
    this.#release();
  }

  /** Keeps what is not passed when the parser has seen it: the buffer that it came in is the next packet's. */
  keep(): void {
    if (this.#at === this.#bytes.length || this.#bytes.buffer === this.#store.buffer) return;
    this.#bytes = this.#behindLeft(none);
    this.#at = 0;
  }

  /** Says whether the next request, which just arrived, names HTTP, and passes its head. */
  passHead({ method = '', url = '', rawHeaders }: IncomingMessage): boolean {
    this.#passBody();
    const isHttp =
      this.#reads(method) && this.#passBlanks() && this.#reads(url) && this.#passBlanks() && this.#reads('HTTP/');
    const end = this.#bytes.indexOf(headEnd, this.#at);
    this.#at = end < 0 ? this.#bytes.length : end + headEnd.length;
    const framing = framingOf(rawHeaders);
    if (framing === 'chunked') this.#part = 'chunks';
    else this.#left = framing;
    this.#passBody(); // or what has come of it would be kept until the next packet
    this.#release();
    return isHttp && end >= 0;
  }

  /** Passes what has come of a body, and the empty lines that may stand in front of a request. */
  #passBody(): void {
    for (;;) {
      const passed = Math.min(this.#left, this.#bytes.length - this.#at);
      this.#at += passed;
      this.#left -= passed;
      if (this.#part === 'head' || this.#left > 0) break;
      const end = this.#bytes.indexOf(lf, this.#at);
      if (end < 0) return;
      const line = this.#bytes.toString('latin1', this.#at, end);
      this.#at = end + 1;
      if (this.#part === 'trailers') this.#part = line === '\r' ? 'head' : 'trailers';
      else if (/^0*\r?$|^0+[; \t]/.test(line)) this.#part = 'trailers';
      // Node's parser ends the connection at a size that is none. Nothing behind it is found.
      else this.#left = /^[\da-f]+(?:[; \t]|\r?$)/i.test(line) ? Number.parseInt(line, 16) + 2 : Infinity;
    }
    while (this.#left === 0 && (this.#bytes[this.#at] === cr || this.#bytes[this.#at] === lf)) this.#at++;
  }

  /** What is left with bytes behind it, in a store that doubles: a head can come byte by byte. */
  #behindLeft(bytes: Buffer): Buffer {
    const left = this.#bytes.subarray(this.#at);
    const length = left.length + bytes.length;
    let start = left.byteOffset;
    if (left.buffer !== this.#store.buffer || start + length > this.#store.length) {
      this.#store = Buffer.allocUnsafeSlow(2 * length);
      start = 0;
      left.copy(this.#store);
    }
    bytes.copy(this.#store, start + left.length);
    return this.#store.subarray(start, start + length);
  }

  /** Blanks and zeros are not in Node's limits. What is let go is not found when it is looked for, nor what is behind it. */
  #letGo(): void {
    this.#at = this.#bytes.length;
    if (this.#part !== 'head') this.#left = Infinity;
  }

  #passBlanks(): boolean {
    const from = this.#at;
    while (this.#bytes[this.#at] === blank) this.#at++;
    return this.#at > from;
  }

  #reads(text: string): boolean {
    for (let i = 0; i < text.length; i++) if (this.#bytes[this.#at++] !== text.charCodeAt(i)) return false;
    return true;
  }

  #release(): void {
    if (this.#at < this.#bytes.length) return;
    this.#bytes = none;
    this.#store = none;
    this.#at = 0;
  }
}

/** How long the body is, or that it comes in chunks. Node's own `headers` would be built anew for each request. */
function framingOf(rawHeaders: readonly string[]): number | 'chunked' {
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? '';
    // Of the names that requests have, few are as long as these.
    const value = rawHeaders[index + 1] ?? '';
    // To Node's parser an empty coding is none.
    if (name.length === 17 && value !== '' && name.toLowerCase() === 'transfer-encoding') return 'chunked';
    if (name.length === 14 && name.toLowerCase() === 'content-length') return Number(value);
  }
  return 0;
}

const followed = new WeakMap<Socket, RequestLines>();

/** Follows the requests of a connection that Node's HTTP server listens to, from its first byte on. */
export function followRequestLines(socket: Socket, maxHeadBytes: number): void {
  const lines = new RequestLines(maxHeadBytes);
  followed.set(socket, lines);
  socket.prependListener('data', (bytes: Buffer) => {
    lines.take(bytes);
  });
  socket.on('data', () => {
    lines.keep();
  });
}

/** Says whether the line of a request that just arrived names HTTP. Has to be asked once of each request. */
export function namesHttp(request: IncomingMessage): boolean {
  return followed.get(request.socket)?.passHead(request) === true;
}
