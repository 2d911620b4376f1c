/** A mistake that shows only when a part starts: the wrong options on top of valid ones, and the expected messages. */
export interface WrongStart {
  readonly what: string;
  readonly part: 'gateway' | 'registry' | 'services';
  readonly options: object;
  /** All messages that must appear. */
  readonly messages: readonly RegExp[];
  /** The part continues and reports the problem, which can be fixed while it runs. */
  readonly continues?: true;
  /** The part fails late, with almost all its resources open. The test starts it as a process, which must end. */
  readonly ownProcess?: true;
  readonly args?: readonly string[];
}

/** The message for a secret file that every user can read. */
export const chmod =
  /is accessible to every user of this machine \(mode 0644\)\. To restrict the access, run: chmod 0640 \S+open/;
