import Type, { type Static } from '../typebox/typebox.js';
import { actorForm } from './actor.js';
import { keylessLine } from './line.js';
import { dateTimeForm } from './moment.js';

/** What operators change in the services. Types are in the past tense and are never renamed. */
export const servicesActions = ['wallet.created', 'wallet.funded', 'wallet.withdrawn'] as const;

/** Maximum number of events in one request to the registry. */
export const mostServicesEvents = 100;

const closed = { additionalProperties: false } as const;
const identifier = (what: string) => Type.String({ pattern: /^[A-Za-z0-9_-]{1,64}$/, description: what });
const orNull = <Schema extends ReturnType<typeof Type.String>>(schema: Schema) => Type.Union([Type.Null(), schema]);
const amount = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, description: 'minor units' });
const uuid = Type.String({ pattern: /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/, description: 'a UUID' });
const name = Type.String({ pattern: actorForm, description: 'a name of 1 to 64 letters, digits and . _ @ : + -' });

/** A change that an operator made in the services. */
export const servicesEventSchema = Type.Object(
  {
    /** The id of the request that made the change. The registry stores one event for each. */
    id: uuid,
    /** When the services made the change, by their database. */
    at: Type.String({ pattern: dateTimeForm, maxLength: 40, description: 'a date and time with its zone' }),
    action: Type.Enum([...servicesActions], { description: `one of ${servicesActions.join(', ')}` }),
    merchantId: identifier('the id of a merchant'),
    actor: name,
    administratorId: orNull(identifier('the id of an administrator')),
    proof: Type.String({
      pattern: /^(?:bootstrap|(?:token|session):[A-Za-z0-9_-]{1,64})$/,
      description: 'bootstrap, token:ID or session:ID',
    }),
    claimed: orNull(name),
    source: orNull(Type.String({ pattern: /^[0-9A-Fa-f:.]{2,45}$/, description: 'an IP address' })),
    reason: orNull(keylessLine(200, 'Deposit of 2026-01-31')),
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

/** A change that an operator made in the services. */
export type ServicesEvent = Readonly<Static<typeof servicesEventSchema>>;
