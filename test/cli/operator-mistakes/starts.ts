/** A mistake that shows only where a part starts: its own options above sound ones, and what is said of it. */
export interface WrongStart {
  readonly what: string;
  readonly part: 'gateway' | 'registry' | 'services';
  readonly options: object;
  /** All of these. `$` is the folder of the test. */
  readonly said: readonly RegExp[];
  /** It goes on, and says so: what is wrong is mended while it runs. */
  readonly goesOn?: true;
  readonly args?: readonly string[];
}

/** What is said of a secret that everybody can read. */
export const chmod = /is open to every user of this machine \(mode 0644\): chmod 0640 \S+open/;
