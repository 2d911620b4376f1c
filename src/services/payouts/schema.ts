import { line } from '../../rest/line.js';
import { pagingQuery } from '../../rest/paging.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { amount, currency, digits, id, moment, textOrNull, uuid } from '../fields.js';
import { createdQuery, ofWallet, upTo } from '../list-query.js';

/** The body of `POST /dev/payouts`: to a bank account, from a wallet that is named. */
export const bankPayoutBody = Type.Object({
  walletId: uuid,
  destinationBankCode: digits(3, 10, '058'),
  destinationAccountNumber: digits(5, 34, '0123456789'),
  destinationAccountName: line(100),
  amount,
  remarks: Type.Optional(line(255, 'Invoice 42')),
});

/** The body of `POST /payouts`: to a recipient, from the merchant's default wallet in the currency. */
export const recipientPayoutBody = Type.Object({
  amount,
  currency,
  recipient: Type.String({
    pattern: /^[A-Za-z0-9+][A-Za-z0-9._@-]{2,63}$/,
    description: 'an identifier of 3 to 64 characters: a letter, a digit or +, then letters, digits and . _ @ -',
    examples: ['+2348012345678'],
  }),
});

const statuses = ['pending', 'processing', 'successful', 'failed'] as const;

/**
 * What has become of a payout: the wallet is debited (pending), the bank has it (processing), the money has arrived
 * (successful), or it is back in the wallet (failed). The last two never change again.
 */
export type PayoutStatus = (typeof statuses)[number];

const status = Type.Enum([...statuses], { type: 'string', description: `one of ${statuses.join(', ')}` });

/** The query of the list of payouts. */
export const payoutsQuery = Type.Object({
  ...pagingQuery.properties,
  status: Type.Optional(status),
  walletId: Type.Optional(ofWallet),
  ...createdQuery,
  up_to: Type.Optional(upTo(uuid)),
});

/** Which payouts are asked for. */
export type PayoutsQuery = Static<typeof payoutsQuery>;

/** A payout, as a merchant sees it. Its reference is also that of the transaction that debited the wallet. */
export const payoutSchema = Type.Object(
  {
    id,
    walletId: id,
    status,
    amount,
    currency,
    reference: Type.String(),
    destinationBankCode: textOrNull,
    destinationAccountNumber: textOrNull,
    destinationAccountName: textOrNull,
    recipient: textOrNull,
    remarks: textOrNull,
    failureReason: textOrNull,
    createdAt: moment,
    updatedAt: moment,
  },
  { title: 'Payout' },
);

/** A payout, as a merchant sees it. */
export type Payout = Readonly<Static<typeof payoutSchema>>;

/** Where the money goes. */
export type PayoutDestination = Pick<
  Payout,
  'destinationBankCode' | 'destinationAccountNumber' | 'destinationAccountName' | 'recipient' | 'remarks'
>;
