/** The author of an event: who acted, which credential proved the identity, and from which request the event comes. */
export interface Author {
  /**
   * Name of the administrator. Without an administrator: `bootstrap` for the shared token, `registry` for changes that
   * the registry makes itself, `unknown` for an unknown caller.
   */
  readonly actor: string;
  /**
   * The id of the administrator; null for the shared token (`bootstrap`), the registry itself and an unknown caller.
   */
  readonly administratorId: string | null;
  /**
   * The credential that proved the identity: `bootstrap`, `token:ID`, `session:ID` or `registry`. Otherwise `unproven`.
   */
  readonly proof: string;
  /** The unverified name that a client with the shared token sent in `x-actor`; null if it sent no name. */
  readonly claimed: string | null;
  /** IP address of the client; null if unknown, and for the registry itself. */
  readonly source: string | null;
  readonly requestId: string | null;
  /** The reason that the client sent in `x-reason`; null if it sent no reason. */
  readonly reason: string | null;
  /**
   * If the author is a member of a merchant: the id of this merchant. The limits for members apply to this author.
   * Events do not contain this field.
   */
  readonly memberOf?: string;
}

/** The author of changes that the registry makes itself, such as a repair. */
export const registryAuthor: Author = {
  ...{ actor: 'registry', administratorId: null, proof: 'registry', claimed: null },
  ...{ source: null, requestId: null, reason: null },
};

/** Returns the columns of an event row that describe its author. */
export function authorColumns({ actor, administratorId, proof, claimed, source, requestId, reason }: Author) {
  return { actor, administrator_id: administratorId, proof, claimed, source, request_id: requestId, reason };
}
