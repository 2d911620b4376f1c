import type { TSchema } from '../../typebox/typebox.js';

/** What an example is made from. */
interface Form {
  readonly examples?: readonly unknown[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly anyOf?: readonly TSchema[];
  readonly items?: TSchema;
  readonly properties?: Readonly<Record<string, TSchema>>;
  readonly type?: string;
}

/** An example of what a schema describes, made from those of its fields; undefined where one of them has none. */
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
