/** The parameters of one run of a load. */
export interface LoadOrder {
  /** Returns the next complete request, as sent over the wire. */
  readonly next: () => string;
  /** The expected status of each response. */
  readonly status: number;
  /** Called with each unexpected status. Without this callback, an unexpected status fails the run. */
  readonly onOtherStatus?: (status: number) => void;
  /** The run sends new requests for this many seconds. */
  readonly seconds: number;
}

/** The results of one run of a load. */
export interface LoadResult {
  readonly requests: number;
  readonly seconds: number;
  /** Milliseconds from the intended send time to the end of the response; empty if not measured. */
  readonly latencies: readonly number[];
}

/** A way to send requests to one subject, reusable for several runs. */
export interface Load {
  run(order: LoadOrder): Promise<LoadResult>;
  close(): void;
}
