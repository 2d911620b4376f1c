/** Where the commands print. */
export interface CommandIo {
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
  /** Whether `err` is a terminal, on which a line can be written over. */
  readonly isTerminal?: boolean;
  /** Settles when `out` can take more. */
  readonly drained?: () => Promise<void>;
}
