import Type, { Check, type Static } from '../../typebox/typebox.js';

const problem = Type.Object({ message: Type.String() });

/** Why the registry did not carry something out; the problems are those of fields. */
export const failureSchema = Type.Object({
  success: Type.Literal(false),
  message: Type.String(),
  data: Type.Union([Type.Null(), Type.Object({ errors: Type.Array(problem) })]),
});

/** Where in a list a page is. */
export const pageSchema = Type.Object({
  total_records: Type.Integer(),
  current_page: Type.Integer(),
  total_pages: Type.Integer(),
});

/** What the registry answered to something that it carried out. */
export interface AdminAnswer<Data> {
  readonly data: Data;
  /** Of a list that has pages; null elsewhere. */
  readonly page: Static<typeof pageSchema> | null;
}

const successSchema = Type.Object({ success: Type.Literal(true), data: Type.Unknown() });
const pagedSchema = Type.Object({ meta: pageSchema });

/** Reads a text as JSON; undefined where it is none. */
export function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Reads the body of a success; null for a body of another form. What it has besides is left as it is. */
export function successIn(body: unknown): AdminAnswer<unknown> | null {
  if (!Check(successSchema, body)) return null;
  return { data: body.data, page: Check(pagedSchema, body) ? body.meta : null };
}
