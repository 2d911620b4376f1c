/** The output functions of the commands. */
export interface CommandIo {
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
  /** Whether `err` is a terminal, on which a line can be overwritten. */
  readonly isTerminal?: boolean;
  /** Resolves when the buffer of `out` is empty. Absent if `out` has no buffer. */
  readonly drained?: () => Promise<void>;
}
