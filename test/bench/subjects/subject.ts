import type { Place } from '../compare/place.js';

/** A subject that runs. */
export interface StartedSubject {
  readonly pid: number;
  readonly httpPort: number;
  readonly httpsPort: number;
  /** Its access log, which may be emptied between rounds; null: it has none. */
  readonly logFile: string | null;
  /** Changes what it knows, until what it gives is called; absent: nothing changes. */
  readonly disturb?: () => () => Promise<void>;
}

/** A program that is measured. */
export interface Subject {
  readonly name: string;
  /** For people, in tables and plots. */
  readonly title: string;
  /** How many keys it knows; absent: as many as the scenario says. */
  readonly keys?: number;
  /** Why it cannot run here; null where it can. */
  missing(): string | null;
  start(place: Place): Promise<StartedSubject>;
}
