import Type, { Check, type Static } from '../../typebox/typebox.js';

const problem = Type.Object({ message: Type.String() });

/** The envelope of a failure. `data.errors` has the problems of single fields. */
export const failureSchema = Type.Object({
  success: Type.Literal(false),
  message: Type.String(),
  data: Type.Union([Type.Null(), Type.Object({ errors: Type.Array(problem) })]),
});

/** Position of a page in a list. */
export const pageSchema = Type.Object({
  total_records: Type.Integer(),
  current_page: Type.Integer(),
  total_pages: Type.Integer(),
});

/** The content of a successful response. */
export interface AdminResponse<Data> {
  readonly data: Data;
  /** Position of the page for a paginated list; otherwise null. */
  readonly page: Static<typeof pageSchema> | null;
}

const successSchema = Type.Object({ success: Type.Literal(true), data: Type.Unknown() });
const pagedSchema = Type.Object({ meta: pageSchema });

/** Parses a text as JSON; undefined if it is invalid. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Reads the body of a successful response; null if it does not have the form of one. Ignores additional fields. */
export function parseSuccess(body: unknown): AdminResponse<unknown> | null {
  if (!Check(successSchema, body)) return null;
  return { data: body.data, page: Check(pagedSchema, body) ? body.meta : null };
}
