import { failure, type Problem } from './envelope.js';

/** Default failure codes by status. A 401 has no code, because the API's specification defines its exact body. */
const codesByStatus: Readonly<Record<number, string>> = {
  400: 'bad_request',
  403: 'forbidden',
  404: 'not_found',
  405: 'method_not_allowed',
  408: 'request_timeout',
  409: 'conflict',
  413: 'body_too_large',
  415: 'unsupported_media_type',
  421: 'misdirected_request',
  422: 'validation_failed',
  431: 'headers_too_large',
  500: 'internal_error',
  503: 'service_unavailable',
};

/** Returns the stable failure code for a status; null if the status has no code. */
export function codeOf(statusCode: number): string | null {
  return codesByStatus[statusCode] ?? null;
}

/** An error whose response tells the client what to do. The message is written for the client. */
export class Refusal extends Error {
  /**
   * @param code the stable code of this failure, for programs; never renamed
   * @param details further data for programs, such as the id of a conflicting record
   * @param retryAfterSeconds the value of the header `retry-after`; null for no header. A 503 always has the value 1
   */
  constructor(
    readonly statusCode: number,
    message: string,
    readonly problems: readonly Problem[] = [],
    readonly code: string | null = codeOf(statusCode),
    readonly details: Readonly<Record<string, string>> = {},
    readonly retryAfterSeconds: number | null = null,
  ) {
    super(message);
    this.name = 'Refusal';
  }

  /**
   * Creates a 404. A missing record and a record of another merchant give the same 404, so that clients cannot
   * distinguish these cases.
   */
  static notFound(what: string): Refusal {
    return new Refusal(404, `${what} not found`);
  }

  /** Creates a 422 for invalid fields, with the first problem as the message. */
  static invalid(problems: readonly [Problem, ...Problem[]], code?: string): Refusal {
    return new Refusal(422, problems[0].message, problems, code);
  }

  /** Creates a 503: this process cannot handle the request now, but a later attempt could succeed. */
  static unavailable(): Refusal {
    return new Refusal(503, 'Service unavailable');
  }

  /** The response body. */
  get body(): ReturnType<typeof failure> {
    return failure(this.message, this.problems, this.code, this.details);
  }
}
