import type { TSchema } from '../../typebox/typebox.js';

/** What a route says of itself in the API's description, besides the schemas by which its requests are checked. */
export interface Operation {
  readonly summary: string;
  /** Of the request, where it is described more closely than its schema checks. */
  readonly body?: TSchema;
  /** Of the answer: one record, */
  readonly data?: TSchema;
  /** or a page of them. */
  readonly page?: TSchema;
  /** It changes nothing, though its method may say otherwise. */
  readonly isRead?: true;
  /** The status of success, where it is not 200. */
  readonly status?: 201;
  /** The message of success, for the example of its answer. */
  readonly message?: string;
  /** Fields of `data` in that example, where they are not those of its schema. */
  readonly example?: Readonly<Record<string, unknown>>;
  /** Codes of failures that not every route of its kind has. */
  readonly codes?: readonly string[];
  /** Failures that it has beyond those of every route of its kind, by status. */
  readonly failures?: Readonly<Record<number, string>>;
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The route is part of the described API. */
    operation?: Operation;
    /** The route can be asked without a token. */
    isOpen?: true;
  }
}
