import type { Generated } from 'kysely';
import type { Environment } from './identity.js';

/** What every record has: whose it is, and when it was made, in milliseconds since 1970. */
interface OwnedRow {
  merchant_id: string;
  environment: Environment;
  created_at: number;
}

interface WalletRow extends OwnedRow {
  sequence: Generated<number>;
  id: string;
  currency: string;
  balance: number;
  /** 1 or 0: SQLite has no booleans. */
  is_default: number;
}

interface PayoutRow extends OwnedRow {
  sequence: Generated<number>;
  id: string;
  wallet_id: string;
  status: 'pending';
  amount: number;
  currency: string;
  reference: string;
  destination_bank_code: string | null;
  destination_account_number: string | null;
  destination_account_name: string | null;
  recipient: string | null;
  remarks: string | null;
}

interface TransactionRow extends OwnedRow {
  id: Generated<number>;
  wallet_id: string;
  payout_id: string | null;
  type: 'credit' | 'debit';
  status: 'success';
  amount: number;
  currency: string;
  reference: string;
  balance_after: number;
}

interface CustomerRow extends OwnedRow {
  sequence: Generated<number>;
  id: string;
  email: string;
  first_name: string;
  last_name: string;
  phone: string | null;
  updated_at: number;
}

/** The tables of the services. `sequence` is the order of creation, which a clock does not tell within a millisecond. */
export interface ServicesTables {
  wallets: WalletRow;
  payouts: PayoutRow;
  transactions: TransactionRow;
  customers: CustomerRow;
}
