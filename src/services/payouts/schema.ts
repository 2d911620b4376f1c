import { keylessLine, noKeyIn, noKeyWords } from '../../rest/line.js';
import { withPurpose } from '../../rest/openapi/json-schema.js';
import { pagingQuery } from '../../rest/paging.js';
import Type, { type Static } from '../../typebox/typebox.js';
import {
  amount,
  currency,
  digits,
  id,
  timestamp,
  optionalOrNull,
  serviceReference,
  textOrNull,
  uuid,
} from '../fields.js';
import { createdQuery, walletFilter, upTo } from '../list-query.js';

/**
 * The merchant's own reference of a payout. Only ASCII is valid, because two different sequences of Unicode code points
 * can be displayed as the same text.
 */
const reference = Type.String({
  pattern: new RegExp(`${noKeyIn}[!-~]{1,64}$`),
  description: `1 to 64 visible ASCII characters without spaces, and ${noKeyWords}`,
  examples: ['invoice-42'],
});

const newReference = optionalOrNull(
  reference,
  'Your own reference, unique among your payouts: a second payout with this reference is rejected with 409',
);

/** The body of `POST /dev/payouts`: a payout to a bank account, from a given wallet. */
export const bankPayoutBody = Type.Object({
  walletId: uuid,
  destinationBankCode: digits(3, 10, '058'),
  destinationAccountNumber: digits(5, 34, '0123456789'),
  destinationAccountName: keylessLine(100, 'Amina Okafor'),
  amount,
  remarks: optionalOrNull(keylessLine(255, 'Invoice 42')),
  reference: newReference,
});

/** The body of `POST /payouts`: a payout to a recipient, from the merchant's default wallet in the currency. */
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
 * Status of a payout: `pending` (the wallet is debited), `processing` (the bank has the order), `successful` (the money
 * has arrived) or `failed` (the money is back in the wallet). The last two are final.
 */
export type PayoutStatus = (typeof statuses)[number];

const status = Type.Enum([...statuses], { type: 'string', description: `one of ${statuses.join(', ')}` });

/** The query of the list of payouts. */
export const payoutsQuery = Type.Object({
  ...pagingQuery.properties,
  status: Type.Optional(status),
  reference: Type.Optional(
    withPurpose(reference, 'Only the payout that has this value as its merchantReference or as its reference'),
  ),
  walletId: Type.Optional(walletFilter),
  ...createdQuery,
  up_to: Type.Optional(upTo(uuid)),
});

/** The parsed query of the list of payouts. */
export type PayoutsQuery = Static<typeof payoutsQuery>;

/** A payout, as a merchant sees it. The transaction that debited its wallet has the same `reference`. */
export const payoutSchema = Type.Object(
  {
    id,
    walletId: id,
    status,
    amount,
    currency,
    reference: serviceReference,
    /** The `reference` of the merchant's request, unique per merchant and environment; null if the request had none. */
    merchantReference: textOrNull(
      'invoice-42',
      "The merchant's own reference, from the request that created the payout",
    ),
    destinationBankCode: textOrNull('058'),
    destinationAccountNumber: textOrNull('0123456789'),
    destinationAccountName: textOrNull('Amina Okafor'),
    recipient: textOrNull(null),
    remarks: textOrNull('Invoice 42'),
    failureReason: textOrNull(null),
    createdAt: timestamp,
    updatedAt: timestamp,
  },
  { title: 'Payout' },
);

/** A payout, as a merchant sees it. */
export type Payout = Readonly<Static<typeof payoutSchema>>;

/** The destination of a payout. */
export type PayoutDestination = Pick<
  Payout,
  'destinationBankCode' | 'destinationAccountNumber' | 'destinationAccountName' | 'recipient' | 'remarks'
>;
