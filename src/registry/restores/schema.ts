import Type, { type Static } from '../../typebox/typebox.js';

const moment = Type.String({ format: 'date-time' });

/** A period for which the database may lack changes. */
export const restoreSchema = Type.Object({
  /** When the restore was detected. */
  foundAt: moment,
  /** Time of the newest event in the database: changes between it and `foundAt` are unknown. Null without events. */
  unknownSince: Type.Union([moment, Type.Null()]),
  /**
   * Whether another source knew a change that the database lacks. If false, no such source is left, and the database
   * may be complete.
   */
  certain: Type.Boolean(),
});

/** A key or merchant that is inactive because another source knew it as inactive under a later revision. */
export const heldBackSchema = Type.Object({
  kind: Type.Enum(['key', 'merchant']),
  /** The id of the key; null if the merchant is held back. */
  keyId: Type.Union([Type.String(), Type.Null()]),
  merchantId: Type.String(),
  /** The former name of keyId or, for a merchant, of merchantId. */
  id: Type.String({ deprecated: true, description: 'Read keyId instead or, for a merchant, merchantId.' }),
  /** The source: `store`, or the instance id of a gateway. */
  source: Type.String(),
  foundAt: moment,
});

/** A held-back record in the admin API. */
export type HeldBack = Readonly<Static<typeof heldBackSchema>>;
