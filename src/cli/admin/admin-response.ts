import Type, { Check, type Static } from '../../typebox/typebox.js';

const problem = Type.Object({ message: Type.String() });

/** Schema of an error response. `data.errors` contains the problems of single fields. */
export const failureSchema = Type.Object({
  success: Type.Literal(false),
  message: Type.String(),
  data: Type.Union([Type.Null(), Type.Object({ errors: Type.Array(problem), code: Type.Optional(Type.String()) })]),
});

/** Schema of the pagination data of a list. */
export const pageSchema = Type.Object({
  total_records: Type.Integer(),
  current_page: Type.Integer(),
  total_pages: Type.Integer(),
});

/** The content of a success response. */
export interface AdminResponse<Data> {
  readonly data: Data;
  /** Pagination data of a list; null for other responses. */
  readonly page: Static<typeof pageSchema> | null;
}

const successSchema = Type.Object({ success: Type.Literal(true), data: Type.Unknown() });
const pagedSchema = Type.Object({ meta: pageSchema });

/** Parses JSON text; undefined if the text is invalid. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Reads the body of a success response. Ignores unknown fields. Null if the body is no success response. */
export function parseSuccess(body: unknown): AdminResponse<unknown> | null {
  if (!Check(successSchema, body)) return null;
  return { data: body.data, page: Check(pagedSchema, body) ? body.meta : null };
}
