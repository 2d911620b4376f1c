/** The origin of an event: who acted, how the registry knows that, and where the request came from. */
export interface Author {
  /** Name of the administrator; `registry` for what the registry does itself. */
  readonly actor: string;
  /** Null for the shared token (`bootstrap`) and for the registry itself. */
  readonly administratorId: string | null;
  /** How the identity was proven: `bootstrap`, `token:ID`, `session:ID` or `registry`. */
  readonly proof: string;
  /** The name that the client claimed in `x-actor` with the shared token. Nothing proves it. */
  readonly claimed: string | null;
  /** IP address of the client. */
  readonly source: string | null;
  readonly requestId: string | null;
  /** The reason that the client gave (`x-reason`). */
  readonly reason: string | null;
}

/** The author of what the registry does itself, such as a repair. */
export const registryAuthor: Author = {
  ...{ actor: 'registry', administratorId: null, proof: 'registry', claimed: null },
  ...{ source: null, requestId: null, reason: null },
};

/** Returns the columns of the author in an event. */
export function authorColumns({ actor, administratorId, proof, claimed, source, requestId, reason }: Author) {
  return { actor, administrator_id: administratorId, proof, claimed, source, request_id: requestId, reason };
}
