import { shownAs } from '../../rest/openapi/json-schema.js';
import { pagingQuery } from '../../rest/paging.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { amount, currency, id, moment, ownReference } from '../fields.js';
import { createdQuery, ofWallet, upTo } from '../list-query.js';

const types = ['credit', 'debit'] as const;
const statuses = ['pending', 'successful', 'reversed'] as const;

/** The direction of a movement, seen from the wallet. */
export type TransactionType = (typeof types)[number];

/**
 * What has become of the payout that a debit pays for: it is under way (pending), paid (successful), or failed, and another
 * transaction has brought the money back (reversed). A credit is successful from the first.
 */
export type TransactionStatus = (typeof statuses)[number];

/** The form of the ids of transactions, which are numbers. */
export const transactionNumberForm = /^[1-9][0-9]{0,14}$/;

const type = Type.Enum([...types], { type: 'string', description: `one of ${types.join(', ')}` });
const status = Type.Enum([...statuses], { type: 'string', description: `one of ${statuses.join(', ')}` });
const number = Type.Integer({
  ...{ minimum: 1, maximum: 999_999_999_999_999 },
  ...{ description: 'the id of a transaction', examples: [1] },
});
const numberText = Type.String({ pattern: transactionNumberForm, description: 'the id of a transaction' });

/** The path of one transaction. Whatever the id is, it is looked for: what cannot be one is not found either. */
export const transactionParams = Type.Object({ id: shownAs(Type.String(), number) });

/** The query of the list of transactions. */
export const transactionsQuery = Type.Object({
  ...pagingQuery.properties,
  type: Type.Optional(type),
  status: Type.Optional(status),
  walletId: Type.Optional(ofWallet),
  ...createdQuery,
  up_to: Type.Optional(upTo(shownAs(numberText, number))),
});

/** Which transactions are asked for. */
export type TransactionsQuery = Static<typeof transactionsQuery>;

/**
 * A movement on a wallet, as a merchant sees it. Movements are added, and nothing but their status ever changes; those of
 * a wallet, whatever their status, add up to its balance.
 */
export const transactionSchema = Type.Object(
  {
    id: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER, examples: [1] }),
    /** In minor units, always positive; the type tells the direction. */
    amount,
    currency,
    type,
    status,
    reference: ownReference,
    walletId: id,
    /** The payout that this movement paid for, or whose money it brought back. */
    payoutId: Type.Union([id, Type.Null()]),
    balanceAfter: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, examples: [750_000] }),
    createdAt: moment,
  },
  { title: 'Transaction' },
);

/** A movement on a wallet, as a merchant sees it. */
export type Transaction = Readonly<Static<typeof transactionSchema>>;
