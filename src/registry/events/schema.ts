import { actorForm } from '../../rest/actor.js';
import { keylessLine, noKeyIn } from '../../rest/line.js';
import { pagingQuery } from '../../rest/paging.js';
import { mostServicesEvents, servicesEventSchema, walletActions } from '../../rest/trail/services-events.js';
import { dateTimeForm } from '../../rest/moment.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { identifierForm } from '../fields.js';

const snapshot = Type.Union([Type.Null(), Type.Record(Type.String(), Type.Unknown())]);

const optionalText = Type.Optional(Type.Union([Type.Null(), Type.String()]));

/** The type of an event. Types are in the past tense, except `key.unusual-use`, and are never renamed. */
export type Action = (typeof actions)[number];

const actions = [
  ...(['merchant.created', 'merchant.changed', 'merchant.imported'] as const),
  ...(['key.created', 'key.revoked', 'key.reset', 'keys.imported'] as const),
  ...(['merchant.held-back', 'merchant.lifted', 'key.held-back', 'key.lifted', 'record.forged'] as const),
  ...(['administrator.created', 'administrator.changed', 'token.created', 'token.revoked'] as const),
  ...(['sign-in.failed', 'attempt.refused', 'merchant.read'] as const),
  ...(['sign-in.succeeded', 'sign-in.ended', 'console-link.created'] as const),
  ...(['approval.requested', 'approval.approved', 'approval.rejected', 'approval.refused'] as const),
  ...(['approval-rules.changed'] as const),
  ...walletActions,
  ...(['instance-key.pinned', 'instance-key.confirmed', 'instance-key.ended'] as const),
  ...(['events.exported', 'records.exported', 'usage.forgotten'] as const),
  ...(['key.unusual-use', 'key.unusual-use-decided'] as const),
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
  // The following fields are optional, because a registry of the previous release does not send them.
  administratorId: optionalText,
  proof: optionalText,
  claimed: optionalText,
  source: optionalText,
  requestId: optionalText,
  reason: optionalText,
});

/** An event in the admin API. */
export type RegistryEvent = Static<typeof eventSchema>;

const wholeNumber = /^(?:0|[1-9][0-9]{0,14})$/;

const identifier = (what: string) => Type.Optional(Type.String({ pattern: identifierForm, description: what }));
const number = (what: string) => Type.Optional(Type.String({ pattern: wholeNumber, description: what }));
const personName = Type.Optional(
  Type.String({
    pattern: actorForm,
    description: 'a name of 1 to 64 letters, digits and . _ @ : + -, beginning with a letter or a digit',
  }),
);
const moment = Type.Optional(
  Type.String({ pattern: dateTimeForm, description: 'a date and time with its zone, such as 2026-01-31T12:00:00Z' }),
);

/**
 * The filter fields of events. They are the fields of an event except `before`, `after` and `at`. The fields `since`
 * and `until` limit the time `at`. An event must match each field that the query contains.
 */
export const eventFilters = {
  seq: number('a whole number: the sequence number of an event'),
  merchantId: identifier('the id of a merchant'),
  keyId: identifier('the id of a key'),
  // Rejects unknown types. Otherwise a misspelled type would return an empty list, as if no such event existed.
  action: Type.Optional(Type.Enum([...actions], { type: 'string', description: `one of ${actions.join(', ')}` })),
  actor: personName,
  administratorId: identifier('the id of an administrator'),
  proof: Type.Optional(
    Type.String({
      pattern: new RegExp(`${noKeyIn}(?:bootstrap|registry|unproven|(?:token|session):[A-Za-z0-9_-]{1,64})$`),
      description:
        'bootstrap (the shared token), registry (the registry itself), unproven (a failed sign-in), token:ID or session:ID',
    }),
  ),
  claimed: personName,
  source: Type.Optional(Type.String({ pattern: /^[0-9A-Fa-f.:]{2,45}$/, description: 'an IP address' })),
  requestId: identifier('the id of an HTTP request'),
  reason: Type.Optional(keylessLine(200, 'ticket 4711')),
  revision: number('a whole number: the revision, which is the number that the registry gave the change'),
  since: moment,
  until: moment,
};

/** The query of `GET /events`. */
export const eventsQuery = Type.Object({ ...pagingQuery.properties, ...eventFilters });

const afterSeq = number('a whole number: the sequence number of the last event to skip');

/** The query of `POST /events/exports`. */
export const exportsQuery = Type.Object({ ...eventFilters, after: afterSeq });

/** The query of `GET /events/exports/:id`. */
export const exportQuery = Type.Object({ after: afterSeq });

/**
 * The content of `after` in an event about an export: the filter of the export, and the sequence number after which the
 * export begins.
 */
export const exportedSchema = Type.Object({
  filter: Type.Object(eventFilters, { additionalProperties: false }),
  after: Type.Integer({ minimum: 0 }),
});

/** The response of `POST /events/exports`. */
export const begunExportSchema = Type.Object({
  /** The sequence number of this export's own event, which is the last event that the export contains. */
  seq: Type.Integer({ minimum: 1 }),
  after: Type.Integer({ minimum: 0 }),
});

/** The response of `GET /events/exports/:id`. */
export const eventExportPageSchema = Type.Object({
  /**
   * The events of the page, oldest first. `hash` is the event's hash in the chain; null for an event that is not in the
   * chain.
   */
  events: Type.Array(Type.Object({ ...eventSchema.properties, hash: Type.Union([Type.Null(), Type.String()]) })),
  /** The sequence number after which the next page begins; null after the last page. */
  next: Type.Union([Type.Null(), Type.Integer({ minimum: 0 })]),
});

/** One page of an export of events. */
export type EventExportPage = Static<typeof eventExportPageSchema>;
/** The body of `POST /events/services`. */
export const servicesEventsBody = Type.Object({
  events: Type.Array(servicesEventSchema, {
    minItems: 1,
    maxItems: mostServicesEvents,
    description: `a list of 1 to ${mostServicesEvents} events`,
  }),
});

/** The response of `POST /events/services`. `appended` is the number of events that were not stored before. */
export const appendedSchema = Type.Object({ appended: Type.Integer({ minimum: 0 }) });

const count = Type.Integer({ minimum: 0 });
const textOrNull = Type.Union([Type.Null(), Type.String()]);

/** The response of `GET /events/chain`. */
export const chainStateSchema = Type.Object({
  head: Type.Object({ position: count, hash: Type.String() }),
  pruned: Type.Object({
    ...{ position: count, hash: Type.String(), at: Type.Union([Type.Null(), count]), note: textOrNull },
  }),
  // `firstSeq` has no minimum: an attacker could insert an event by SQL, with a sequence number below 1.
  unchained: Type.Object({ count, firstSeq: Type.Union([Type.Null(), Type.Integer()]) }),
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
      pattern: wholeNumber,
      description: 'a whole number: the position of the last row to skip',
    }),
  ),
});
