import pino from 'pino';
import type { Level, Logger } from 'pino';

export type { Logger };

/** The product's own log: JSON lines on standard error, so that standard output stays the access log's. */
export function createLogger(level: Level | 'silent'): Logger {
  return pino(
    { level, base: null, timestamp: pino.stdTimeFunctions.isoTime },
    pino.destination({ dest: 2, sync: true }),
  );
}
