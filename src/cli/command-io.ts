/** Where the commands print. */
export interface CommandIo {
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
}
