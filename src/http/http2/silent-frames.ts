import type { ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import { headerListBytes } from './require-http2-limits.js';

/** How often it is looked at what connections have sent, in milliseconds: a flood lasts no longer. */
const lookMilliseconds = 100;
/** What a client may send without a purpose at once, and each second from then on, in bytes. */
const burstBytes = 65_536;
const bytesPerSecond = 4_096;
/** What a piece of a body may have around it: the head of its frame, and a little padding. */
const frameOverheadBytes = 32;
/** RFC 9113 6.9.2: what a client may send of a body before it is told to go on. */
const windowBytes = 65_535;

/**
 * Bounds frames that ask for nothing: PRIORITY (CVE-2019-9513), WINDOW_UPDATE (CVE-2019-9511), PRIORITY_UPDATE, and frames
 * of types that nobody knows. nghttp2 takes them and tells nobody, so what is counted is the bytes of the connection.
 * Those have a purpose that were headers or bodies of requests; and as many as were written, because each frame of an
 * answer may be acknowledged by two WINDOW_UPDATE frames, which are smaller than the smallest answer.
 */
class SilentFrames {
  #purposeful = 0;
  #left = burstBytes;
  #read = 0;
  #written = 0;

  /** @param flood told when there were too many */
  constructor(
    readonly socket: TLSSocket,
    readonly flood: () => void,
  ) {
    this.#read = socket.bytesRead;
    this.#written = socket.bytesWritten;
  }

  /** Notes a request, whose fields are given flat, and its body. */
  asked(stream: ServerHttp2Stream, fields: readonly string[]): void {
    this.#purposeful += headerListBytes(fields);
    if (stream.endAfterHeaders) return;
    let bodyBytes = 0;
    const push = stream.push.bind(stream);
    stream.push = (chunk: Buffer | null, encoding?: BufferEncoding) => {
      if (chunk !== null) {
        bodyBytes += chunk.length;
        this.#purposeful += chunk.length + frameOverheadBytes;
      }
      return push(chunk, encoding);
    };
    // More of a body that was cut short may be under way.
    stream.once('close', () => {
      if (!stream.readableEnded) this.#purposeful += Math.max(0, windowBytes - bodyBytes);
    });
  }

  look(): void {
    const { bytesRead, bytesWritten } = this.socket;
    const wasted = bytesRead - this.#read - this.#purposeful - (bytesWritten - this.#written);
    this.#left = Math.min(burstBytes, this.#left + (bytesPerSecond * lookMilliseconds) / 1000 - wasted);
    this.#read = bytesRead;
    this.#written = bytesWritten;
    this.#purposeful = 0;
    if (this.#left < 0) this.flood();
  }
}

/** The connections that are looked at, by one timer for all of them. */
const watched = new Set<SilentFrames>();
let looks: NodeJS.Timeout | undefined;

/**
 * Bounds the frames of a connection that ask for nothing.
 * @param flood told when there were too many of them
 */
export function boundSilentFrames(session: ServerHttp2Session, socket: TLSSocket, flood: () => void): void {
  const frames = new SilentFrames(socket, flood);
  session.on('stream', (stream: ServerHttp2Stream, _headers: object, _flags: number, fields: string[]) => {
    frames.asked(stream, fields);
  });
  watched.add(frames);
  looks ??= setInterval(() => {
    for (const one of watched) one.look();
  }, lookMilliseconds).unref();
  session.once('close', () => {
    watched.delete(frames);
    if (watched.size > 0) return;
    clearInterval(looks);
    looks = undefined;
  });
}
