import { describedAs } from '../rest/openapi/json-schema.js';
import Type, { type TSchema } from '../typebox/typebox.js';

// An error message consists of a field's name, "must be" and the field's description. So each description below must
// complete such a sentence.

const exampleId = '0b8f6f0e-4c9b-4a35-9b52-3a4d5f6e7a80';

/** An amount of money in minor units. */
export const amount = Type.Integer({
  minimum: 1,
  maximum: Number.MAX_SAFE_INTEGER,
  description: `a positive whole number of minor units, such as kobo, up to ${Number.MAX_SAFE_INTEGER}`,
  examples: [250_000],
});

/** A 3-letter currency code. */
export const currency = Type.String({
  pattern: /^[A-Z]{3}$/,
  description: 'a 3-letter currency code, such as NGN',
  examples: ['NGN'],
});

/** Pattern for all ids except transaction ids. */
export const uuidForm = /^[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$/;

/** The id of a record in a request. */
export const uuid = Type.String({
  pattern: uuidForm,
  description: 'a UUID',
  examples: [exampleId],
});

/** The id of a record in a response. */
export const id = Type.String({
  pattern: /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/,
  examples: [exampleId],
});

/**
 * Path parameter of a route for one record. The schema accepts any text, because a malformed id must get the same 404
 * as an unknown id.
 */
export const recordParams = Type.Object({ id: describedAs(Type.String(), uuid) });

/** A time in a response. */
export const timestamp = Type.String({ format: 'date-time', examples: ['2026-01-31T12:00:00.000Z'] });

/**
 * The reference of a payout or transaction in a response. A movement by an operator has the operator's reference; the
 * services assign all other references. A payout has the same reference as the transaction that debited its wallet.
 */
export const serviceReference = Type.String({
  description:
    'The services assign the reference, unless an operator moved the money and chose the reference. A payout has the same reference as the transaction that debited its wallet',
  examples: ['01KFZ4S7Q2N8V3C5X6B9D0E1FG'],
});

/** Creates the schema of a text field of a response. The field is null if the record has no value. */
export function textOrNull(example: string | null, description?: string) {
  const words = description === undefined ? {} : { description };
  return Type.Union([Type.String(), Type.Null()], { ...words, examples: [example] });
}

/**
 * Creates the schema of a field that can be absent or null. Some clients send null for fields that they do not set. So
 * in a new record, null means the same as an absent field. In a change, null removes the value.
 * @param purpose what the field is for
 */
export function optionalOrNull<Schema extends TSchema>(schema: Schema, purpose?: string) {
  const form = 'description' in schema ? String(schema.description) : 'in a valid form';
  const words = purpose === undefined ? {} : { purpose };
  return Type.Optional(Type.Union([schema, Type.Null()], { ...words, description: `${form}, or null` }));
}

/** Creates the schema of an identifier made of digits. It is a string, because leading zeros are significant. */
export function digits(least: number, most: number, example: string) {
  return Type.String({
    pattern: new RegExp(`^[0-9]{${least},${most}}$`),
    description: `a string of ${least} to ${most} digits`,
    examples: [example],
  });
}
