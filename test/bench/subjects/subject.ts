import type { Place } from '../compare/place.js';

/** A running subject. */
export interface StartedSubject {
  readonly pid: number;
  readonly httpPort: number;
  readonly httpsPort: number;
  /** Its access log, which is truncated after each round; null: no access log. */
  readonly logFile: string | null;
  /** Starts changing the subject's records; the returned function stops that. Absent: no changes. */
  readonly disturb?: () => () => Promise<void>;
}

/** A program to measure. */
export interface Subject {
  readonly name: string;
  /** The title in tables and plots. */
  readonly title: string;
  /** Number of known keys; absent: the scenario's number. */
  readonly keys?: number;
  /** The reason why it cannot run on this machine; null if it can. */
  missing(): string | null;
  start(place: Place): Promise<StartedSubject>;
}
