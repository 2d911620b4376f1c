/** A record that a gateway does not find, and asks for. */
export interface RecordAsk {
  /** To answer it by. */
  readonly name: string;
  /** The record's name, as in `StoreEntry`. */
  readonly record: string;
}

/** What gateways ask for because they do not find it. */
export interface RecordInbox {
  /** Called when something was asked for. */
  onWork: () => void;
  /** Takes what was asked for, at most so much; each question is given once. */
  take(most: number): readonly RecordAsk[];
  /**
   * @param present the names of the records that were written again; there are no others
   * @param generation that in which they were
   */
  answer(asks: readonly RecordAsk[], present: ReadonlySet<string>, generation: string): Promise<void>;
}
