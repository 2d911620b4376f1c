/** An error that the operator can fix. Its message is a full sentence that is printed without a stack trace. */
export class OperatorError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'OperatorError';
  }
}

const reasons: Readonly<Record<string, string>> = {
  EADDRINUSE: 'the port is in use; stop the process that uses it or choose another port',
  EACCES: 'this user has no permission to use the port; choose a port above 1023',
  EADDRNOTAVAIL: 'this machine does not have that address; choose one of its addresses, or 0.0.0.0 for all addresses',
  ENOTFOUND: 'the host name cannot be resolved; correct it, or use an IP address of this machine',
};

/**
 * Converts a listen error to an OperatorError if the operator can fix its cause; returns any other error unchanged.
 * @param option path of the listener in the configuration, such as `listen.https`
 */
export function asListenError(error: unknown, option: string, at: { host: string; port: number }): unknown {
  const reason = listenProblemOf(error);
  if (reason === undefined) return error;
  return new OperatorError(`Cannot listen on ${at.host}:${at.port} (${option}): ${reason}.`, { cause: error });
}

/** Returns the cause of a listen error and what to do; undefined if the operator cannot fix the cause. */
export function listenProblemOf(error: unknown): string | undefined {
  return reasons[(error as NodeJS.ErrnoException).code ?? ''];
}
