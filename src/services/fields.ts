import Type from '../typebox/typebox.js';

// The description of a field is also what a caller is told to send: "amount must be " and the description.

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
  examples: ['0b8f6f0e-4c9b-4a35-9b52-3a4d5f6e7a80'],
});

/** The id of a record in an answer. */
export const id = Type.String({ pattern: /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/ });

/** A moment in an answer. */
export const moment = Type.String({ format: 'date-time' });

/** What may be missing in an answer is null. */
export const textOrNull = Type.Union([Type.String(), Type.Null()]);

/** A number that is a name, so that its leading zeros count. */
export function digits(least: number, most: number, example: string) {
  return Type.String({
    pattern: new RegExp(`^[0-9]{${least},${most}}$`),
    description: `a string of ${least} to ${most} digits`,
    examples: [example],
  });
}
