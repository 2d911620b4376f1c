import type { EventEmitter } from 'node:events';
import type { ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import { Roster } from '../roster.js';
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
/** For how many looks the rest of a body that was cut short may be under way: a second, longer than a round trip takes. */
const underWayLooks = 10;

/** What is looked at of a request's stream. */
type RequestStream = Pick<ServerHttp2Stream, 'push' | 'endAfterHeaders' | 'closed'> & EventEmitter;

/**
 * Bounds frames that ask for nothing: PRIORITY (CVE-2019-9513), WINDOW_UPDATE (CVE-2019-9511), PRIORITY_UPDATE, and frames
 * of types that nobody knows. nghttp2 takes them and tells nobody, so what is counted is the bytes of the connection.
 * Those have a purpose that were headers or bodies of requests; and as many as were written, because each frame of an
 * answer may be acknowledged by two WINDOW_UPDATE frames, which are smaller than the smallest answer.
 */
export class SilentFrames {
  #purposeful = 0;
  #left = burstBytes;
  #read = 0;
  #written = 0;
  /** Bytes of bodies cut short that may still come, by the look before which they were: the newest is last. */
  readonly #underWay: number[] = new Array<number>(underWayLooks).fill(0);
  #cutShort = 0;

  /**
   * @param socket whose bytes are counted
   * @param flood told when there were too many
   */
  constructor(
    readonly socket: Pick<TLSSocket, 'bytesRead' | 'bytesWritten'>,
    readonly flood: () => void,
  ) {
    this.#read = socket.bytesRead;
    this.#written = socket.bytesWritten;
  }

  /** Notes a request, whose fields are given flat, and its body. */
  asked(stream: RequestStream, fields: readonly string[]): void {
    this.#purposeful += headerListBytes(fields);
    if (stream.endAfterHeaders) return;
    let bodyBytes = 0;
    let isWhole = false;
    const push = stream.push.bind(stream);
    const countAndPush = (chunk: Buffer | null, encoding?: BufferEncoding): boolean => {
      if (chunk !== null) {
        bodyBytes += chunk.length;
        this.#purposeful += chunk.length + frameOverheadBytes;
      } else if (!stream.closed) {
        isWhole = true; // the client has ended it; Node ends one that is closed as well, as if it were whole
      }
      return push(chunk, encoding);
    };
    stream.push = countAndPush;
    // More of a body that was cut short may be under way: its client has yet to hear of it.
    stream.once('close', () => {
      if (!isWhole) this.#cutShort += Math.max(0, windowBytes - bodyBytes);
    });
  }

  /** Counts what came since the last look; to be called every 100 ms. */
  look(): void {
    const { bytesRead, bytesWritten } = this.socket;
    const unasked = bytesRead - this.#read - this.#purposeful - (bytesWritten - this.#written);
    const wasted = unasked - this.#takeUnderWay(unasked);
    this.#left = Math.min(burstBytes, this.#left + (bytesPerSecond * lookMilliseconds) / 1000 - wasted);
    this.#read = bytesRead;
    this.#written = bytesWritten;
    this.#purposeful = 0;
    if (this.#left < 0) this.flood();
  }

  /** Takes up to so many bytes for the rest of bodies that were cut short, and says how many those were. */
  #takeUnderWay(bytes: number): number {
    this.#underWay.shift();
    this.#underWay.push(this.#cutShort);
    this.#cutShort = 0;
    let taken = 0;
    for (const [look, rest] of this.#underWay.entries()) {
      const more = Math.max(0, Math.min(rest, bytes - taken));
      this.#underWay[look] = rest - more;
      taken += more;
    }
    return taken;
  }
}

/** The connections that are looked at, by one timer for all of them. */
const watched = new Roster<SilentFrames>();
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
  const leave = watched.add(frames);
  looks ??= setInterval(() => {
    for (const one of watched.members()) one.look();
  }, lookMilliseconds).unref();
  session.once('close', () => {
    leave();
    if (watched.size > 0) return;
    clearInterval(looks);
    looks = undefined;
  });
}
