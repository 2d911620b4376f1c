import Type, { type Static } from '../../typebox/typebox.js';

const moment = Type.String({ format: 'date-time' });

/**
 * A certain or possible restore of the database from a backup, and the period whose changes the database could lack.
 */
export const restoreSchema = Type.Object({
  /** When the registry detected the restore. */
  foundAt: moment,
  /**
   * Time of the newest event in the database. Changes that were made between this time and `foundAt` could be missing.
   * Null if the database has no events.
   */
  unknownSince: Type.Union([moment, Type.Null()]),
  /**
   * True if the store or a gateway has a change that the database lacks. False if neither has such a change, so that
   * the database could be complete.
   */
  certain: Type.Boolean(),
});

/**
 * A key or merchant that the registry restricted after its database was restored from a backup. A gateway or the store
 * in Redis had a record of this key or merchant with fewer rights, from a change that the database lacks.
 */
export const heldBackSchema = Type.Object({
  kind: Type.Enum(['key', 'merchant']),
  /** The id of the key; null if the record is a merchant. */
  keyId: Type.Union([Type.String(), Type.Null()]),
  merchantId: Type.String(),
  /** The deprecated name of `keyId` or, for a merchant, of `merchantId`. */
  id: Type.String({
    deprecated: true,
    description: 'Deprecated: read keyId instead or, if the record is a merchant, merchantId.',
  }),
  /** Where the record with fewer rights was found: `store`, or the instance id of a gateway. */
  source: Type.String(),
  foundAt: moment,
});

/** A key or merchant that stays restricted after a restore, in the admin API. */
export type HeldBack = Readonly<Static<typeof heldBackSchema>>;
