/** What load is to do. */
export interface LoadOrder {
  /** The next request, whole, as it goes over the wire. */
  readonly next: () => string;
  /** The status that each answer must have. */
  readonly status: number;
  /** Takes each other status, which ends the run where this is missing. */
  readonly onOtherStatus?: (status: number) => void;
  /** For how long requests are begun. */
  readonly seconds: number;
}

/** What load has seen. */
export interface LoadResult {
  readonly requests: number;
  readonly seconds: number;
  /** Milliseconds from the intended time of sending to the end of the answer; empty where that was not measured. */
  readonly latencies: readonly number[];
}

/** Some way to send requests to one subject, kept from round to round. */
export interface Load {
  run(order: LoadOrder): Promise<LoadResult>;
  close(): void;
}
