import type { Generated } from '../database/kysely.js';
import type { Environment } from './assertion-verifier.js';
import type { PayoutStatus } from './payouts/schema.js';
import type { TransactionStatus, TransactionType } from './transactions/schema.js';

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
  /** In whose name an operator made it; null for one that is older than the ledger. */
  created_by: string | null;
}

interface PayoutRow extends OwnedRow {
  sequence: Generated<number>;
  id: string;
  wallet_id: string;
  status: PayoutStatus;
  amount: number;
  currency: string;
  reference: string;
  /** The merchant's own; null where it gave none. */
  merchant_reference: string | null;
  destination_bank_code: string | null;
  destination_account_number: string | null;
  destination_account_name: string | null;
  recipient: string | null;
  remarks: string | null;
  failure_reason: string | null;
  /** When the worker shall look at it next; null once the payout has ended. */
  due_at: number | null;
  updated_at: number;
}

interface TransactionRow extends OwnedRow {
  id: Generated<number>;
  wallet_id: string;
  payout_id: string | null;
  type: TransactionType;
  status: TransactionStatus;
  amount: number;
  currency: string;
  /** The account on the other side: the operator's float, or money on its way to the bank and at it. */
  counter_account: Generated<'float' | 'payouts'>;
  reference: string;
  balance_after: number;
  /** Why, and in whose name, an operator moved the money; null for what a payout moved. */
  reason: string | null;
  actor: string | null;
}

interface CustomerRow extends OwnedRow {
  sequence: Generated<number>;
  id: string;
  email: string;
  first_name: string;
  last_name: string;
  phone: string | null;
  /** What a search looks at, in lower case: neither database folds the case of all letters. */
  search_text: string;
  updated_at: number;
}

/** Where a deleted customer stood in the list, for those who read it page by page. */
interface DeletedCustomerRow extends Omit<OwnedRow, 'created_at'> {
  id: string;
  sequence: number;
  deleted_at: number;
}

/** The answer to a request that was sent under an idempotency key. */
interface AnswerRow extends OwnedRow {
  key: string;
  /** What tells one request from another. */
  fingerprint: string;
  status: number;
  /** In JSON. */
  body: string;
}

/** The tables of the services. `sequence` is the order of creation, which a clock does not tell within a millisecond. */
export interface ServicesTables {
  wallets: WalletRow;
  payouts: PayoutRow;
  transactions: TransactionRow;
  customers: CustomerRow;
  deleted_customers: DeletedCustomerRow;
  answers: AnswerRow;
}
