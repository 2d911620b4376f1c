import { pagingQuery } from '../../rest/paging.js';
import { mostServicesEvents, servicesActions, servicesEventSchema } from '../../rest/services-events.js';
import { dateTimeForm } from '../../rest/moment.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { identifierForm } from '../fields.js';

const snapshot = Type.Union([Type.Null(), Type.Record(Type.String(), Type.Unknown())]);

const optionalText = Type.Optional(Type.Union([Type.Null(), Type.String()]));

/** The type of an event. Types are in the past tense and are never renamed. */
export type Action = (typeof actions)[number];

const actions = [
  ...(['merchant.created', 'merchant.changed', 'merchant.imported'] as const),
  ...(['key.created', 'key.revoked', 'key.reset', 'keys.imported'] as const),
  ...(['merchant.held-back', 'merchant.lifted', 'key.held-back', 'key.lifted', 'record.forged'] as const),
  ...(['administrator.created', 'administrator.changed', 'token.created', 'token.revoked'] as const),
  ...(['sign-in.failed', 'attempt.refused', 'merchant.read'] as const),
  ...(['sign-in.succeeded', 'sign-in.ended'] as const),
  ...servicesActions,
  ...(['instance-key.pinned', 'instance-key.confirmed', 'instance-key.ended'] as const),
] as const;

/** An event of the audit trail: who changed what, and when. */
export const eventSchema = Type.Object({
  seq: Type.Integer(),
  at: Type.String({ format: 'date-time' }),
  actor: Type.String(),
  action: Type.Enum([...actions]),
  merchantId: Type.String(),
  keyId: Type.Union([Type.Null(), Type.String()]),
  before: snapshot,
  after: snapshot,
  revision: Type.Integer(),
  // Responses of the previous release do not contain the following fields.
  administratorId: optionalText,
  proof: optionalText,
  claimed: optionalText,
  source: optionalText,
  requestId: optionalText,
  reason: optionalText,
});

/** An event in the admin API. */
export type RegistryEvent = Static<typeof eventSchema>;

/** The query of `GET /events`. */
export const eventsQuery = Type.Object({
  ...pagingQuery.properties,
  merchantId: Type.Optional(Type.String({ pattern: identifierForm, description: 'the id of a merchant' })),
  keyId: Type.Optional(Type.String({ pattern: identifierForm, description: 'the id of a key' })),
  // Only known types are accepted: an unknown one would return an empty list, as if there were no such events.
  action: Type.Optional(Type.Enum([...actions], { type: 'string', description: `one of ${actions.join(', ')}` })),
  since: Type.Optional(
    Type.String({ pattern: dateTimeForm, description: 'a date and time with its zone, such as 2026-01-31T12:00:00Z' }),
  ),
});

/** The body of `POST /events/services`. */
export const servicesEventsBody = Type.Object({
  events: Type.Array(servicesEventSchema, {
    minItems: 1,
    maxItems: mostServicesEvents,
    description: `a list of 1 to ${mostServicesEvents} events`,
  }),
});

/** The response of `POST /events/services`: how many of the events were new. */
export const appendedSchema = Type.Object({ appended: Type.Integer({ minimum: 0 }) });

const count = Type.Integer({ minimum: 0 });
const textOrNull = Type.Union([Type.Null(), Type.String()]);

/** The response of `GET /events/chain`. */
export const chainStateSchema = Type.Object({
  head: Type.Object({ position: count, hash: Type.String() }),
  pruned: Type.Object({
    ...{ position: count, hash: Type.String(), at: Type.Union([Type.Null(), count]), note: textOrNull },
  }),
  unchained: Type.Object({ count, firstSeq: Type.Union([Type.Null(), count]) }),
  former: count,
  note: textOrNull,
  publicKey: textOrNull,
});

/** The response of `GET /events/chain/rows`. */
export const chainPageSchema = Type.Object({
  events: Type.Array(Type.Object({ position: count, hash: Type.String(), content: textOrNull })),
  checkpoints: Type.Array(Type.Object({ position: count, signedAt: count, note: Type.String() })),
  next: Type.Union([Type.Null(), count]),
});

/** The query of `GET /events/chain/rows`. */
export const chainQuery = Type.Object({
  after: Type.Optional(
    Type.String({
      pattern: /^(?:0|[1-9][0-9]{0,14})$/,
      description: 'a whole number: the position before the first row',
    }),
  ),
});
