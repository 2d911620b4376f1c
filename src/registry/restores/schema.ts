import Type, { type Static } from '../../typebox/typebox.js';

const moment = Type.String({ format: 'date-time' });

/** A time after which the database may lack changes. */
export const restoreSchema = Type.Object({
  /** When that was found. */
  foundAt: moment,
  /** The newest moment that the database knew of: changes since then, until it was found, are unknown. Null: it knew of none. */
  unknownSince: Type.Union([moment, Type.Null()]),
  /** Whether somebody knew a change that the database lacks. If not, nobody is left who could know one, and it may lack none. */
  certain: Type.Boolean(),
});

/** A key or a merchant that is inactive because somebody knew it as inactive under a later revision than the restored database. */
export const heldBackSchema = Type.Object({
  kind: Type.Enum(['key', 'merchant']),
  /** Of the key; null: it is the merchant that is held back. */
  keyId: Type.Union([Type.String(), Type.Null()]),
  merchantId: Type.String(),
  /** The former name of keyId or, for a merchant, of merchantId. */
  id: Type.String({ deprecated: true, description: 'In place of it, read keyId or, for a merchant, merchantId.' }),
  /** Who knew: `store`, or the instance id of a gateway. */
  source: Type.String(),
  foundAt: moment,
});

/** What is held back, as administrators see it. */
export type HeldBack = Readonly<Static<typeof heldBackSchema>>;
