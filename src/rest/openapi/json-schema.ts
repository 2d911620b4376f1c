import Type, { type TObject, type TProperties, type TSchema } from '../../typebox/typebox.js';

/** Converts a schema to JSON. Replaces each schema that has a title, at any depth, by a `$ref` to that title. */
export function byName(schema: unknown): unknown {
  return JSON.parse(JSON.stringify(plain(schema), (_, value: unknown) => referenceTo(value))) as unknown;
}

/** Returns the JSON form of each schema that has a title. In the result, the title is the name of the schema. */
export function namedSchemas(schemas: readonly TSchema[]): object {
  return Object.fromEntries(
    schemas.flatMap((schema) => ('title' in schema ? [[String(schema.title), plain(schema)] as const] : [])),
  );
}

function referenceTo(value: unknown): unknown {
  const isNamed = typeof value === 'object' && value !== null && 'title' in value && typeof value.title === 'string';
  return isNamed ? { $ref: `#/components/schemas/${String(value.title)}` } : value;
}

/** Converts a schema to JSON, with patterns as text and without typebox's internal properties. */
function plain(schema: unknown): unknown {
  return JSON.parse(
    JSON.stringify(schema, (_, value: unknown) => (value instanceof RegExp ? value.source : value)),
  ) as unknown;
}

/**
 * Converts the schema of a body to JSON. Joins `purpose` and `description` of each field into one description.
 * Validation rejects unknown fields, so `additionalProperties` is false.
 */
export function closed(body: TSchema): object {
  const { properties = {}, ...rest } = plain(body) as { properties?: Readonly<Record<string, Purposeful>> };
  const fields = Object.entries(properties).map(([name, { purpose, description, ...form }]) => {
    const words = [purpose, description].filter((text) => text !== undefined);
    return [name, { ...form, ...(words.length === 0 ? {} : { description: words.join('; ') }) }];
  });
  return { ...rest, properties: Object.fromEntries(fields) as object, additionalProperties: false };
}

interface Purposeful {
  readonly purpose?: string;
  readonly description?: string;
}

/**
 * Adds the purpose of a parameter or field to its schema. The schema's own description states only the form of the
 * value.
 */
export function withPurpose<Schema extends TSchema>(schema: Schema, purpose: string): Schema {
  return { ...schema, purpose };
}

/**
 * Sets the schema that the OpenAPI description shows instead of the schema for validation. For example, the description
 * shows a number for a query parameter that is validated as text.
 */
export function describedAs<Schema extends TSchema>(schema: Schema, shown: TSchema): Schema {
  return { ...schema, shown };
}

/** Builds the OpenAPI parameters of a path or a query. */
export function parametersIn(place: 'path' | 'query', schema: TObject | undefined): object[] {
  const required = new Set<string>(schema?.required);
  return Object.entries(schema?.properties ?? {}).map(([name, field]) => {
    const { purpose: description, shown, ...checked } = plain(field) as { purpose?: string; shown?: object };
    const words = description === undefined ? {} : { description };
    const form = shown ?? checked;
    const example = exampleOf(form);
    const shape = { required: required.has(name), schema: form };
    return { name, in: place, ...words, ...shape, ...(example === undefined ? {} : { example }) };
  });
}

/** Builds the schema of a success response with a page of records. */
export function pageSchema(item: TSchema): TSchema {
  return Type.Object({ ...succeeded, data: Type.Array(item), meta: pageMeta });
}

/** Builds the schema of a success response with one record. */
export function recordSchema(data: TSchema): TSchema {
  return Type.Object({ ...succeeded, data });
}

const succeeded = { success: Type.Literal(true), message: Type.String() };

const pageMeta = Type.Object({
  total_records: Type.Integer({ minimum: 0 }),
  current_page: Type.Integer({ minimum: 1 }),
  total_pages: Type.Integer({ minimum: 0 }),
  per_page: Type.Integer({ minimum: 1, maximum: 100 }),
});

/**
 * Builds the schema of an error response.
 * @param details schemas of additional properties in `data`, besides `code` and `errors`
 */
export function failureSchema(details: TProperties): TObject {
  const errors = Type.Array(Type.Object({ path: Type.String(), message: Type.String() }), {
    description: 'The problem of each invalid field, parameter or header; empty for any other failure',
  });
  const code = Type.String({ description: 'The stable code of the failure, for programs; releases may add codes' });
  const data = Type.Union([Type.Object({ code, ...details, errors }), Type.Null()]);
  return Type.Object({ success: Type.Literal(false), message: Type.String(), data }, { title: 'Failure' });
}

/** The parts of a schema that determine its example. */
interface Form {
  readonly examples?: readonly unknown[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly anyOf?: readonly TSchema[];
  readonly items?: TSchema;
  readonly properties?: Readonly<Record<string, TSchema>>;
  readonly type?: string;
}

/**
 * Builds an example value from the examples in a schema; undefined if the schema or one of its fields has no example.
 */
export function exampleOf(schema: TSchema): unknown {
  const form: Form = schema;
  const { examples, anyOf, items, properties } = form;
  if (examples !== undefined) return examples[0];
  if (form.enum !== undefined) return form.enum[0];
  if ('const' in form) return form.const;
  if (form.type === 'null') return null;
  if (anyOf !== undefined) return anyOf.map(exampleOf).find((example) => example !== undefined);
  if (items !== undefined) {
    const item = exampleOf(items);
    return item === undefined ? undefined : [item];
  }
  if (properties === undefined) return undefined;
  const fields = Object.entries(properties).map(([name, field]) => [name, exampleOf(field)] as const);
  return fields.some(([, example]) => example === undefined) ? undefined : Object.fromEntries(fields);
}
