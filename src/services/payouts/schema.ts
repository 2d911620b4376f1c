import { keylessLine, noKeyIn, noKeyWords } from '../../rest/line.js';
import { withPurpose } from '../../rest/openapi/json-schema.js';
import { pagingQuery } from '../../rest/paging.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { amount, currency, digits, id, moment, optional, ownReference, textOrNull, uuid } from '../fields.js';
import { createdQuery, ofWallet, upTo } from '../list-query.js';

/** The merchant's own reference of a payout. In ASCII, so that none looks like another one in a different encoding of its letters. */
const reference = Type.String({
  pattern: new RegExp(`${noKeyIn}[!-~]{1,64}$`),
  description: `1 to 64 visible ASCII characters without spaces, and ${noKeyWords}`,
  examples: ['invoice-42'],
});

const newReference = optional(
  reference,
  'Your own name for this payout, and for no other: a second payout with it is 409',
);

/** The body of `POST /dev/payouts`: to a bank account, from a wallet that is named. */
export const bankPayoutBody = Type.Object({
  walletId: uuid,
  destinationBankCode: digits(3, 10, '058'),
  destinationAccountNumber: digits(5, 34, '0123456789'),
  destinationAccountName: keylessLine(100, 'Amina Okafor'),
  amount,
  remarks: optional(keylessLine(255, 'Invoice 42')),
  reference: newReference,
});

/** The body of `POST /payouts`: to a recipient, from the merchant's default wallet in the currency. */
export const recipientPayoutBody = Type.Object({
  amount,
  currency,
  recipient: Type.String({
    pattern: new RegExp(`${noKeyIn}[A-Za-z0-9+][A-Za-z0-9._@-]{2,63}$`),
    description: `an identifier of 3 to 64 characters: a letter, a digit or +, then letters, digits and . _ @ -, ${noKeyWords}`,
    examples: ['+2348012345678'],
  }),
  reference: newReference,
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
  reference: Type.Optional(
    withPurpose(reference, 'Only the payout that was sent with this reference, or whose own reference it is'),
  ),
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
    reference: ownReference,
    /** What the merchant sent as `reference`; no other payout of the merchant and environment has it. */
    merchantReference: textOrNull('invoice-42', 'What was sent as reference'),
    destinationBankCode: textOrNull('058'),
    destinationAccountNumber: textOrNull('0123456789'),
    destinationAccountName: textOrNull('Amina Okafor'),
    recipient: textOrNull(null),
    remarks: textOrNull('Invoice 42'),
    failureReason: textOrNull(null),
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
