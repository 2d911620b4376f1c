import Type from 'typebox';
import { line } from '../../rest/line.js';
import { amount, currency, digits, uuid } from '../fields.js';

/** The body of `POST /dev/payouts`: to a bank account, from a wallet that is named. */
export const bankPayoutBody = Type.Object({
  walletId: uuid,
  destinationBankCode: digits(3, 10),
  destinationAccountNumber: digits(5, 34),
  destinationAccountName: line(100),
  amount,
  remarks: Type.Optional(line(255)),
});

/** The body of `POST /payouts`: to a recipient, from the merchant's default wallet in the currency. */
export const recipientPayoutBody = Type.Object({
  amount,
  currency,
  recipient: Type.String({
    pattern: /^[A-Za-z0-9+][A-Za-z0-9._@-]{2,63}$/,
    description: 'an identifier such as a phone number, of 3 to 64 letters and digits',
  }),
});

/** Where the money goes. */
export interface PayoutDestination {
  readonly destinationBankCode: string | null;
  readonly destinationAccountNumber: string | null;
  readonly destinationAccountName: string | null;
  readonly recipient: string | null;
  readonly remarks: string | null;
}

/** A payout, as a merchant sees it. */
export interface Payout extends PayoutDestination {
  readonly id: string;
  readonly walletId: string;
  /** The wallet is debited, and no bank has confirmed anything. */
  readonly status: 'pending';
  readonly amount: number;
  readonly currency: string;
  /** Also the reference of the transaction that debited the wallet. */
  readonly reference: string;
  readonly createdAt: string;
}
