/** Something that whoever runs the product can mend. Its message is one sentence, printed without a stack. */
export class OperatorError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'OperatorError';
  }
}

const reasons: Readonly<Record<string, string>> = {
  EADDRINUSE: 'the port is taken; stop whatever uses it or choose another one',
  EACCES: 'this user may not use the port; choose one above 1023',
  EADDRNOTAVAIL: 'this machine does not have that address',
  ENOTFOUND: 'nothing has that name',
};

/**
 * Turns the failure of a listener into a sentence for operators, where it is one of those that they can mend.
 * @param option the listener's place in the configuration: `listen.https`
 */
export function asListenError(error: unknown, option: string, at: { host: string; port: number }): unknown {
  const reason = reasons[(error as NodeJS.ErrnoException).code ?? ''];
  if (reason === undefined) return error;
  return new OperatorError(`Cannot listen on ${at.host}:${at.port} (${option}): ${reason}.`, { cause: error });
}
