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
  description: 'a public key as audit public-key prints it',
});

/** A public key that signs checkpoints of an instance's access log. */
export const instanceKeySchema = Type.Object({
  /** Name of the instance. */
  name: Type.String(),
  publicKey: Type.String(),
  /** Start of its validity, by the registry's clock. */
  from: moment,
  /** End of its validity; null: until an administrator ends it. */
  to: Type.Union([moment, Type.Null()]),
  pinnedAt: moment,
  /** `registry`: the key was pinned from the first checkpoint of that name. */
  pinnedBy: Type.String(),
  /** Time of its confirmation by an administrator; null: unconfirmed. */
  confirmedAt: Type.Union([moment, Type.Null()]),
  confirmedBy: Type.Union([Type.String(), Type.Null()]),
});

/** A public key of an instance, in the admin API. */
export type InstanceKey = Readonly<Static<typeof instanceKeySchema>>;

/** Request body: confirms a key. */
export const confirmBody = Type.Object({ publicKey });

/** Request body: ends a key. */
export const endBody = Type.Object({ publicKey, to: Type.Optional(givenMoment) });

/** Request body: pins a key. */
export const pinBody = Type.Object({ publicKey, from: Type.Optional(givenMoment), to: Type.Optional(givenMoment) });

/** The newest checkpoint of a run, or a checkpoint of the list. */
export const checkpointSchema = Type.Object({
  /** Index in the list, from 0; null for the newest checkpoint of a run. */
  index: Type.Union([Type.Integer(), Type.Null()]),
  /** In milliseconds since 1970. The list's tree covers this number and the note. */
  receivedAt: Type.Integer(),
  /** The signed checkpoint with its receipt. */
  note: Type.String(),
});

/** Query parameters of the checkpoint list. */
export const checkpointsQuery = Type.Object({
  ...pagingQuery.properties,
  of: Type.Enum(['list', 'runs'], {
    type: 'string',
    description:
      'list: the append-only list, oldest checkpoint first; runs: the newest checkpoint of each run, oldest run first',
  }),
});

/** The key and the signed head that verify the list. */
export const witnessSchema = Type.Object({
  /** The public key for receipts. */
  publicKey: Type.String(),
  /** The signed head of the list. */
  head: Type.String(),
});

/** A finding about an access log. */
export const findingSchema = Type.Object({
  foundAt: moment,
  kind: Type.Enum([...findingKinds]),
  /** The instance and its run. */
  run: Type.String(),
  message: Type.String(),
});
