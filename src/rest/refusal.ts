import type { Problem } from './envelope.js';

/** A request that is answered with an error of the caller's making. Its message is for the caller. */
export class Refusal extends Error {
  constructor(
    readonly statusCode: number,
    message: string,
    readonly problems: readonly Problem[] = [],
    /** Names the kind of refusal for programs; it stays the same from release to release. */
    readonly code?: string,
  ) {
    super(message);
    this.name = 'Refusal';
  }

  /** Whatever is not there, or is another merchant's: the two cannot be told apart. */
  static notFound(what: string): Refusal {
    return new Refusal(404, `${what} not found`);
  }

  /** Fields that cannot be accepted; the first of them is the message. */
  static invalid(problems: readonly [Problem, ...Problem[]]): Refusal {
    return new Refusal(422, problems[0].message, problems);
  }
}
