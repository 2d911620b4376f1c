import pino, { type DestinationStream, type Level, type Logger } from 'pino';
import { cutKeysIn } from './mask-keys.js';

export type { Logger };

const mostCauses = 5;

/** What is held at most while standard error takes nothing; further lines are dropped. */
const maxHeldBytes = 1024 * 1024;
const retryMilliseconds = 100;

/**
 * The product's own log: JSON lines on standard error, so that standard output stays the access log's. A message that
 * comes again and again is written some times in a minute, and then told of by its number.
 * @param windowMilliseconds the minute
 */
export function createLogger(
  level: Level | 'silent',
  destination: DestinationStream = standardError(),
  windowMilliseconds = 60_000,
): Logger {
  const lines = new RepeatedLines(windowMilliseconds);
  let summary: NodeJS.Timeout | null = null;
  const logger = pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: (error: unknown) => errorView(error, mostCauses) },
      hooks: {
        streamWrite: withoutKeys,
        logMethod(args, method, severity) {
          const message = args.find((arg: unknown) => typeof arg === 'string') ?? '';
          if (severity === pino.levels.values.fatal || lines.admit(message, performance.now())) {
            method.apply(this, args);
            return;
          }
          summary ??= setTimeout(() => {
            summary = null;
            for (const [repeated, leftOut] of lines.takeLeftOut()) {
              logger.warn({ repeated, leftOut }, 'a message came too often, and was left out');
            }
          }, windowMilliseconds).unref();
        },
      },
    },
    destination,
  );
  return logger;
}

/** A line of the log without API keys, however they are written. Few lines are written, so each is read again. */
function withoutKeys(line: string): string {
  return `${JSON.stringify(cutKeysIn(JSON.parse(line)))}\n`;
}

/** Standard error, which may be a pipe that nobody reads or a file on a full disk: that must neither hold the process up nor end it. */
function standardError(): DestinationStream {
  const destination = pino.destination({ dest: 2, sync: true, maxLength: maxHeldBytes, retryEAGAIN: () => false });
  let retry: NodeJS.Timeout | null = null;
  return destination.on('error', () => {
    retry ??= setTimeout(() => {
      retry = null;
      destination.write(''); // what is held goes out in front of it
    }, retryMilliseconds).unref();
  });
}

/** What is told of an error. Not all that it has: those of a client of Redis hold commands, and with them a password. */
function errorView(error: unknown, causes: number): unknown {
  if (!(error instanceof Error)) return 'no error';
  const { code } = error as NodeJS.ErrnoException;
  return {
    type: error.name,
    message: error.message,
    code,
    stack: error.stack,
    ...(error.cause instanceof Error && causes > 0 ? { cause: errorView(error.cause, causes - 1) } : {}),
  };
}

/** A message is written so often in a window, and then counted alone. */
const mostInWindow = 20;
/** Messages are a fixed set of sentences; this is a guard, not a limit that is met. */
const mostMessages = 1_000;

/** Counts the messages of a log, so that one that comes with every request does not fill the disk. */
export class RepeatedLines {
  readonly #windowMilliseconds: number;
  #counts = new Map<string, number>();
  #windowEnd = 0;

  constructor(windowMilliseconds: number) {
    this.#windowMilliseconds = windowMilliseconds;
  }

  /**
   * Says whether a message may be written now.
   * @param now milliseconds on a clock that nobody sets
   */
  admit(message: string, now: number): boolean {
    if (now >= this.#windowEnd) {
      this.#counts.clear();
      this.#windowEnd = now + this.#windowMilliseconds;
    }
    const count = (this.#counts.get(message) ?? 0) + 1;
    if (count === 1 && this.#counts.size >= mostMessages) return false;
    this.#counts.set(message, count);
    return count <= mostInWindow;
  }

  /** The messages of this window that were left out, and how often; a new window begins. */
  takeLeftOut(): [message: string, count: number][] {
    const leftOut = [...this.#counts].filter(([, count]) => count > mostInWindow);
    this.#counts = new Map();
    this.#windowEnd = 0;
    return leftOut.map(([message, count]) => [message, count - mostInWindow]);
  }
}
