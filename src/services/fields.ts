import { shownAs } from '../rest/openapi/json-schema.js';
import Type, { type TSchema } from '../typebox/typebox.js';

// The description of a field is also what a caller is told to send: "amount must be " and the description.

const exampleId = '0b8f6f0e-4c9b-4a35-9b52-3a4d5f6e7a80';

/** An amount of money. */
export const amount = Type.Integer({
  minimum: 1,
  maximum: Number.MAX_SAFE_INTEGER,
  description: `a positive whole number of minor units, such as kobo, up to ${Number.MAX_SAFE_INTEGER}`,
  examples: [250_000],
});

/** A currency. */
export const currency = Type.String({
  pattern: /^[A-Z]{3}$/,
  description: 'a 3-letter currency code, such as NGN',
  examples: ['NGN'],
});

/** The form of every id but those of transactions. */
export const uuidForm = /^[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$/;

/** A reference to another record. */
export const uuid = Type.String({
  pattern: uuidForm,
  description: 'a UUID',
  examples: [exampleId],
});

/** The id of a record in an answer. */
export const id = Type.String({
  pattern: /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/,
  examples: [exampleId],
});

/** The path of one record. Whatever the id is, it is looked for: what cannot be one is not found either. */
export const recordParams = Type.Object({ id: shownAs(Type.String(), uuid) });

/** A moment in an answer. */
export const moment = Type.String({ format: 'date-time', examples: ['2026-01-31T12:00:00.000Z'] });

/** The services' own reference of a payout and of the transaction that debited the wallet. */
export const ownReference = Type.String({
  description: 'Given by the service: that of a payout is also that of the transaction that debited the wallet',
  examples: ['01KFZ4S7Q2N8V3C5X6B9D0E1FG'],
});

/** What may be missing in an answer is null. */
export function textOrNull(example: string | null, description?: string) {
  const words = description === undefined ? {} : { description };
  return Type.Union([Type.String(), Type.Null()], { ...words, examples: [example] });
}

/**
 * A field that may be left out, or be null, which says the same: clients send null for what they do not set.
 * @param purpose what the field is for
 */
export function optional<Schema extends TSchema>(schema: Schema, purpose?: string) {
  const form = 'description' in schema ? String(schema.description) : 'of another form';
  const words = purpose === undefined ? {} : { purpose };
  return Type.Optional(Type.Union([schema, Type.Null()], { ...words, description: `${form}, or null` }));
}

/** A number that is a name, so that its leading zeros count. */
export function digits(least: number, most: number, example: string) {
  return Type.String({
    pattern: new RegExp(`^[0-9]{${least},${most}}$`),
    description: `a string of ${least} to ${most} digits`,
    examples: [example],
  });
}
