import Type, { type Static } from '../../typebox/typebox.js';
import { actorForm } from '../actor.js';
import { keylessLine } from '../line.js';
import { dateTimeForm } from '../moment.js';

/**
 * Types of the events about operators' changes in the services. Stored events contain these names, so the names never
 * change.
 */
export const walletActions = ['wallet.created', 'wallet.funded', 'wallet.withdrawn'] as const;

/** The types of events that the services send. The registry also stores events of its own with the last three types. */
export const servicesActions = [...walletActions, 'sign-in.failed', 'attempt.refused', 'merchant.read'] as const;

/** Maximum number of events in one request to the registry. */
export const mostServicesEvents = 100;

const closed = { additionalProperties: false } as const;
const identifier = (what: string) => Type.String({ pattern: /^[A-Za-z0-9_-]{1,64}$/, description: what });
const orNull = <Schema extends ReturnType<typeof Type.String>>(schema: Schema) => Type.Union([Type.Null(), schema]);
const amount = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, description: 'minor units' });
const uuid = Type.String({ pattern: /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/, description: 'a UUID' });
const name = Type.String({
  pattern: actorForm,
  description: 'a name of 1 to 64 letters, digits and . _ @ : + -, beginning with a letter or a digit',
});
const moment = Type.String({ pattern: dateTimeForm, maxLength: 40, description: 'a date and time with its zone' });

const request = {
  /** The id of the request that caused the event. The registry stores only one event per id. */
  id: uuid,
  /** When the services made the change or stored the event, by the clock of their database. */
  at: moment,
  source: orNull(Type.String({ pattern: /^[0-9A-Fa-f:.]{2,45}$/, description: 'an IP address' })),
};

const operator = {
  actor: name,
  administratorId: orNull(identifier('the id of an administrator')),
  proof: Type.String({
    pattern: /^(?:bootstrap|(?:token|session):[A-Za-z0-9_-]{1,64})$/,
    description: 'bootstrap (the shared token), token:ID or session:ID',
  }),
  claimed: orNull(name),
  reason: orNull(keylessLine(200, 'Deposit of 2026-01-31')),
};

const walletChange = Type.Object(
  {
    ...{ ...request, ...operator },
    action: Type.Enum([...walletActions], { description: `one of ${walletActions.join(', ')}` }),
    merchantId: identifier('the id of a merchant'),
    before: Type.Union([Type.Null(), Type.Object({ balance: amount }, closed)]),
    after: Type.Object(
      {
        ...{ walletId: uuid, environment: Type.Enum(['live', 'test'], { description: 'one of live, test' }) },
        currency: Type.String({ pattern: /^[A-Z]{3}$/, description: 'a code of three capital letters' }),
        balance: amount,
        amount: Type.Optional(amount),
        reference: Type.Optional(Type.String({ pattern: /^[A-Za-z0-9._:/-]{1,100}$/, description: 'a reference' })),
      },
      closed,
    ),
  },
  closed,
);

const count = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER });
const mostCauses = 20;

/** How many attempts were refused within a minute, in total and by cause. */
const counted = {
  cause: Type.String({ pattern: /^[a-z_-]{1,40}(?:, [a-z_-]{1,40}){0,19}$/ }),
  refusals: count,
  causes: Type.Record(Type.String({ pattern: '^[a-z_-]{1,40}$' }), count, { ...closed, maxProperties: mostCauses }),
  since: moment,
  /** Number of earlier refused attempts for which no event was stored. */
  omittedBefore: Type.Optional(count),
};

const withoutMerchant = { merchantId: Type.Literal(''), before: Type.Null() };

const refusedSignIn = Type.Object(
  {
    ...{ ...request, ...withoutMerchant, action: Type.Literal('sign-in.failed'), actor: Type.Literal('unknown') },
    ...{ administratorId: Type.Null(), proof: Type.Literal('unproven'), claimed: Type.Null(), reason: Type.Null() },
    after: Type.Object(counted, closed),
  },
  closed,
);

const refusedAttempt = Type.Object(
  {
    ...{ ...request, ...operator, ...withoutMerchant, action: Type.Literal('attempt.refused') },
    after: Type.Object(
      {
        ...counted,
        method: Type.String({ pattern: /^[A-Z-]{1,20}$/ }),
        route: Type.String({ pattern: /^[A-Za-z0-9/:_-]{1,100}$/ }),
        needs: Type.String({ pattern: /^[a-z:]{1,64}$/ }),
      },
      closed,
    ),
  },
  closed,
);

const firstRead = Type.Object(
  {
    ...{ ...request, ...operator, action: Type.Literal('merchant.read'), before: Type.Null() },
    merchantId: Type.Union([Type.Literal(''), identifier('the id of a merchant')]),
    after: Type.Object({ what: Type.Enum(['wallets', 'entries'], { description: 'wallets or entries' }) }, closed),
  },
  closed,
);

/**
 * The events that the services send: changes of wallets, refused attempts, and an operator's first read of a merchant's
 * records in an hour.
 */
export const servicesEventSchema = Type.Union([walletChange, refusedSignIn, refusedAttempt, firstRead]);

/** An event that the services send to the registry. */
export type ServicesEvent = Readonly<Static<typeof servicesEventSchema>>;
