/** Where the gateways of a cluster share what one of them has fetched for all. */
export interface SharedExitLists {
  /**
   * The record as it stands; null: there is none.
   * @throws where nothing can be asked now
   */
  read(): Promise<string | null>;
  /**
   * Makes this process the one that fetches; null where another one is.
   * @throws where nothing can be asked now
   */
  claim(): Promise<FetchClaim | null>;
  close(): Promise<void>;
}

/** The right to fetch for all. It is prolonged while it is held, and ends by itself when its process does. */
export interface FetchClaim {
  /** Writes the record; false where the claim was lost meanwhile, and another process fetches. */
  publish(record: string): Promise<boolean>;
  release(): Promise<void>;
}
