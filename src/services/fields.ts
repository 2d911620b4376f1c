import Type from 'typebox';

// The description of a field is also what a caller is told to send: "amount must be " and the description.

/** An amount of money. */
export const amount = Type.Integer({
  minimum: 1,
  maximum: Number.MAX_SAFE_INTEGER,
  description: 'a positive whole number of minor units, such as kobo',
});

/** A currency. */
export const currency = Type.String({ pattern: /^[A-Z]{3}$/, description: 'a 3-letter currency code, such as NGN' });

/** The form of every id but those of transactions. */
export const uuidForm = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** A reference to another record. */
export const uuid = Type.String({ pattern: uuidForm, description: 'a UUID' });

/** A number that is a name, so that its leading zeros count. */
export function digits(least: number, most: number) {
  return Type.String({
    pattern: new RegExp(`^[0-9]{${least},${most}}$`),
    description: `a string of ${least} to ${most} digits`,
  });
}
