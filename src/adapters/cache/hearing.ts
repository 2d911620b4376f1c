/** What the cache asks about the truth of what it holds. */
export interface Hearing {
  /** Whether every change is heard, so that what is held is true. */
  readonly fresh: boolean;
  /** Milliseconds since everything held was known to be true. */
  readonly sinceKnownTrue: number;
  /** For how long after that it may be served. */
  readonly staleMilliseconds: number;
  /** Tries to be fresh again, in bounded time; resolves whether or not that worked. */
  catchUp(): Promise<void>;
}
