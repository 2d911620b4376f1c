import { describedAs } from '../../rest/openapi/json-schema.js';
import { pagingQuery } from '../../rest/paging.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { amount, currency, id, timestamp, serviceReference } from '../fields.js';
import { createdQuery, walletFilter, upTo } from '../list-query.js';

const types = ['credit', 'debit'] as const;
const statuses = ['pending', 'successful', 'reversed'] as const;

/** The direction of a movement: `credit` adds to the wallet, `debit` takes from it. */
export type TransactionType = (typeof types)[number];

/**
 * Status of a transaction. The debit of a payout is `pending` (payout in progress), `successful` (paid) or `reversed`
 * (payout failed; another transaction refunded the money). All other transactions are always `successful`.
 */
export type TransactionStatus = (typeof statuses)[number];

/** Pattern for a transaction id: a positive integer of at most 15 digits. */
export const transactionNumberForm = /^[1-9][0-9]{0,14}$/;

const type = Type.Enum([...types], { type: 'string', description: `one of ${types.join(', ')}` });
const status = Type.Enum([...statuses], { type: 'string', description: `one of ${statuses.join(', ')}` });
const number = Type.Integer({
  ...{ minimum: 1, maximum: 999_999_999_999_999 },
  ...{ description: 'the id of a transaction', examples: [1] },
});
const numberText = Type.String({ pattern: transactionNumberForm, description: 'the id of a transaction' });

/**
 * Path parameter of a route for one transaction. The schema accepts any text, because a malformed id must get the same
 * 404 as an unknown one.
 */
export const transactionParams = Type.Object({ id: describedAs(Type.String(), number) });

/** The query of the list of transactions. */
export const transactionsQuery = Type.Object({
  ...pagingQuery.properties,
  type: Type.Optional(type),
  status: Type.Optional(status),
  walletId: Type.Optional(walletFilter),
  ...createdQuery,
  up_to: Type.Optional(upTo(describedAs(numberText, number))),
});

/** The parsed query of the list of transactions. */
export type TransactionsQuery = Static<typeof transactionsQuery>;

/**
 * A movement on a wallet, as a merchant sees it. After the movement is created, only its status can change. A wallet's
 * balance is the sum of all its movements, regardless of status.
 */
export const transactionSchema = Type.Object(
  {
    id: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER, examples: [1] }),
    /** Amount in minor units, always positive; `type` gives the direction. */
    amount,
    currency,
    type,
    status,
    reference: serviceReference,
    walletId: id,
    /** The payout that this movement paid or refunded; null for an operator's movement. */
    payoutId: Type.Union([id, Type.Null()]),
    balanceAfter: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, examples: [750_000] }),
    createdAt: timestamp,
  },
  { title: 'Transaction' },
);

/** A movement on a wallet, as a merchant sees it. */
export type Transaction = Readonly<Static<typeof transactionSchema>>;
