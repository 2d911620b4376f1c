import { failure, type Problem } from './envelope.js';

/** The codes of failures, by status, where a failure has no code of its own. A 401 has none: its body is the spec's. */
const codesByStatus: Readonly<Record<number, string>> = {
  400: 'bad_request',
  403: 'forbidden',
  404: 'not_found',
  405: 'method_not_allowed',
  408: 'request_timeout',
  409: 'conflict',
  413: 'body_too_large',
  415: 'unsupported_media_type',
  422: 'validation_failed',
  431: 'headers_too_large',
  500: 'internal_error',
  503: 'service_unavailable',
};

/** The stable name by which a program tells a failure of this status; null where it has none. */
export function codeOf(statusCode: number): string | null {
  return codesByStatus[statusCode] ?? null;
}

/** A request that is answered with an error of the caller's making. Its message is for the caller. */
export class Refusal extends Error {
  /**
   * @param code the stable name by which a program tells this failure; never renamed
   * @param details what a program needs beside it, such as the id of the record that is in the way
   */
  constructor(
    readonly statusCode: number,
    message: string,
    readonly problems: readonly Problem[] = [],
    readonly code: string | null = codeOf(statusCode),
    readonly details: Readonly<Record<string, string>> = {},
  ) {
    super(message);
    this.name = 'Refusal';
  }

  /** Whatever is not there, or is another merchant's: the two cannot be told apart. */
  static notFound(what: string): Refusal {
    return new Refusal(404, `${what} not found`);
  }

  /** Fields that cannot be accepted; the first of them is the message. */
  static invalid(problems: readonly [Problem, ...Problem[]], code?: string): Refusal {
    return new Refusal(422, problems[0].message, problems, code);
  }

  /** What this process cannot do now, and perhaps soon can. */
  static unavailable(): Refusal {
    return new Refusal(503, 'Service unavailable');
  }

  /** The envelope. */
  get body(): ReturnType<typeof failure> {
    return failure(this.message, this.problems, this.code, this.details);
  }
}
