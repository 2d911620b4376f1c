import { dateTimeForm } from '../../rest/moment.js';
import { pagingQuery } from '../../rest/paging.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { findingKinds } from './findings.js';

const moment = Type.String({ format: 'date-time' });
const givenMoment = Type.String({
  pattern: dateTimeForm,
  description: 'a date and time with its zone, such as 2026-01-31T12:00:00Z',
});
const publicKey = Type.String({
  minLength: 1,
  maxLength: 512,
  description: 'a public key as "merchant-gateway audit public-key" prints it',
});

/** A public key of an instance (gateway). It verifies checkpoints, the signed states of the instance's access log. */
export const instanceKeySchema = Type.Object({
  /** The name of the instance. */
  name: Type.String(),
  publicKey: Type.String(),
  /** Start of the key's validity, according to the registry's clock. */
  from: moment,
  /** End of the key's validity; null if no administrator has set an end. */
  to: Type.Union([moment, Type.Null()]),
  pinnedAt: moment,
  /**
   * The name of the administrator that pinned the key, that is, stored the key as valid. `registry` means that the
   * registry pinned the key when it received the first checkpoint of that instance name.
   */
  pinnedBy: Type.String(),
  /** When an administrator confirmed the key; null if the key is not confirmed. */
  confirmedAt: Type.Union([moment, Type.Null()]),
  confirmedBy: Type.Union([Type.String(), Type.Null()]),
});

/** A public key of an instance, in the admin API. */
export type InstanceKey = Readonly<Static<typeof instanceKeySchema>>;

/** The body of a request that confirms a key. */
export const confirmBody = Type.Object({ publicKey });

/** The body of a request that ends the validity of a key. */
export const endBody = Type.Object({ publicKey, to: Type.Optional(givenMoment) });

/** The body of a request that pins a key. */
export const pinBody = Type.Object({ publicKey, from: Type.Optional(givenMoment), to: Type.Optional(givenMoment) });

/**
 * A checkpoint, the signed state of an access log. It is an entry of the list of checkpoints, or the newest checkpoint
 * of a run. A run is the part of an access log that one process writes to one file.
 */
export const checkpointSchema = Type.Object({
  /** Index in the list of checkpoints, from 0. Null with `of=runs`, which returns the newest checkpoint of each run. */
  index: Type.Union([Type.Integer(), Type.Null()]),
  /**
   * When the registry received the checkpoint, in milliseconds since 1970. A leaf of the list's Merkle tree is the hash
   * of this number and `note`.
   */
  receivedAt: Type.Integer(),
  /** The signed checkpoint with a receipt: a signature that proves that the registry accepted the checkpoint. */
  note: Type.String(),
});

/** Query parameters of the list of checkpoints. */
export const checkpointsQuery = Type.Object({
  ...pagingQuery.properties,
  of: Type.Enum(['list', 'runs'], {
    type: 'string',
    description:
      'list: the start and end checkpoint of each log run, and one every ten minutes, oldest first; runs: the newest checkpoint of each run, oldest run first. A run is the part of a log that one process wrote into one file',
  }),
});

/** The public key and the signed head with which clients verify the list of checkpoints. */
export const witnessSchema = Type.Object({
  /** The registry's public key. It verifies the head and the receipts for checkpoints. */
  publicKey: Type.String(),
  /** The size and root hash of the list's Merkle tree, signed. */
  head: Type.String(),
});

/** A problem that the registry found in the checkpoints (signed states) of an access log. */
export const findingSchema = Type.Object({
  foundAt: moment,
  kind: Type.Enum([...findingKinds]),
  /** The name of the instance, a slash and the id of the run. */
  run: Type.String(),
  message: Type.String(),
});
