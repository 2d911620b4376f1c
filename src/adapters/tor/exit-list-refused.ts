/** Why a source's list did not take the place of the one before. The names stand in metrics and are never renamed. */
export type RefusalReason =
  | 'unreadable'
  | 'unreachable'
  | 'bad_answer'
  | 'too_large'
  | 'cut_off'
  | 'html'
  | 'malformed'
  | 'empty'
  | 'shrunken'
  | 'names_trusted_proxy';

/** A list of Tor exits that cannot be had or must not be used. The message goes after "because", and quotes no content. */
export class ExitListRefused extends Error {
  constructor(
    readonly reason: RefusalReason,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = 'ExitListRefused';
  }
}
