/** The output streams of the commands. */
export interface CommandIo {
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
  /** Whether `err` is a terminal, where a line can be overwritten. */
  readonly isTerminal?: boolean;
  /** Resolves when the buffer of `out` has drained. */
  readonly drained?: () => Promise<void>;
}
