import pino, { type DestinationStream, type Level, type Logger } from 'pino';
import { cutKeysIn } from './mask-keys.js';

export type { Logger };

const maxCauses = 5;

/** Maximum number of bytes in memory while standard error cannot be written. Further lines are dropped. */
const maxHeldBytes = 1024 * 1024;
const retryMilliseconds = 100;

/**
 * Creates the log of this program: JSON lines on standard error, because standard output is for the access log. A
 * repeated message is written only a few times per minute, unless it is fatal. Further occurrences are only counted,
 * and the count is logged.
 * @param windowMilliseconds length of the period in which repetitions are counted; default one minute
 */
export function createLogger(
  level: Level | 'silent',
  destination: DestinationStream = standardError(),
  windowMilliseconds = 60_000,
): Logger {
  const lines = new RepeatLimiter(windowMilliseconds);
  let summary: NodeJS.Timeout | null = null;
  const logger = pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: (error: unknown) => errorView(error, maxCauses) },
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
              logger.warn({ repeated, leftOut }, 'repeated message suppressed');
            }
          }, windowMilliseconds).unref();
        },
      },
    },
    destination,
  );
  return logger;
}

/**
 * Removes API keys, in any encoding, and administrators' tokens from a log line. Parses the line, which is affordable
 * because the program's log has few lines.
 */
function withoutKeys(line: string): string {
  return `${JSON.stringify(cutKeysIn(JSON.parse(line)))}\n`;
}

/**
 * Writes to standard error. If standard error is a pipe without a reader or a file on a full disk, writing must neither
 * block nor end the process.
 */
function standardError(): DestinationStream {
  const destination = pino.destination({ dest: 2, sync: true, maxLength: maxHeldBytes, retryEAGAIN: () => false });
  let retry: NodeJS.Timeout | null = null;
  return destination.on('error', () => {
    retry ??= setTimeout(() => {
      retry = null;
      destination.write(''); // writes the buffered lines
    }, retryMilliseconds).unref();
  });
}

/**
 * Returns the properties of an error that are safe to log. Omits all others: errors of the Redis client contain
 * commands, and a command can contain a password.
 */
function errorView(error: unknown, causes: number): unknown {
  if (!(error instanceof Error)) return 'the thrown value is not an Error object';
  const { code } = error as NodeJS.ErrnoException;
  return {
    type: error.name,
    message: error.message,
    code,
    stack: error.stack,
    ...(error.cause instanceof Error && causes > 0 ? { cause: errorView(error.cause, causes - 1) } : {}),
  };
}

/** How often one message is written in a period of `windowMilliseconds`. Further occurrences are only counted. */
const maxPerWindow = 20;
/** Maximum number of distinct messages to count; not reached in practice, because messages are fixed sentences. */
const maxMessages = 1_000;
/** Stands for all messages beyond `maxMessages`. */
const otherMessages = '(other messages)';

/** Limits how often each message is logged, so that a message caused by every request does not fill the disk. */
export class RepeatLimiter {
  readonly #windowMilliseconds: number;
  readonly #counts = new Map<string, number>();
  /** How often each message was suppressed since the last call of `takeLeftOut`. */
  readonly #leftOut = new Map<string, number>();
  #windowEnd = 0;

  constructor(windowMilliseconds: number) {
    this.#windowMilliseconds = windowMilliseconds;
  }

  /**
   * Counts a message. Returns true if the message is to be written now, false if it is suppressed.
   * @param now time of a monotonic clock in milliseconds
   */
  admit(message: string, now: number): boolean {
    if (now >= this.#windowEnd) {
      this.#counts.clear();
      this.#windowEnd = now + this.#windowMilliseconds;
    }
    const isCounted = this.#counts.has(message) || this.#counts.size < maxMessages;
    const name = isCounted ? message : otherMessages;
    const count = (this.#counts.get(name) ?? 0) + 1;
    this.#counts.set(name, count);
    if (isCounted && count <= maxPerWindow) return true;
    this.#leftOut.set(name, (this.#leftOut.get(name) ?? 0) + 1);
    return false;
  }

  /** Returns the messages that were suppressed since the last call, with their counts. */
  takeLeftOut(): [message: string, count: number][] {
    const leftOut = [...this.#leftOut];
    this.#leftOut.clear();
    return leftOut;
  }
}
