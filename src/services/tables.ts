import type { Generated } from '../database/kysely.js';
import type { Environment } from './assertion-verifier.js';
import type { PayoutStatus } from './payouts/schema.js';
import type { TransactionStatus, TransactionType } from './transactions/schema.js';

/** The columns that most tables share: the owner of the record, and its creation time in milliseconds since 1970. */
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
  /** 1 if payouts in this currency without a wallet id use this wallet, otherwise 0. SQLite has no booleans. */
  is_default: number;
  /** Name of the operator who created the wallet. Null if an old release, which had no ledger, created the wallet. */
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
  /** The merchant's own reference; null if the request had none. */
  merchant_reference: string | null;
  destination_bank_code: string | null;
  destination_account_number: string | null;
  destination_account_name: string | null;
  recipient: string | null;
  remarks: string | null;
  failure_reason: string | null;
  /**
   * The time, in milliseconds since 1970, at which the worker processes the payout next. While a process has a lease
   * (an exclusive claim) on the payout, this is the end of the lease. Null once the payout is final.
   */
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
  /**
   * The account on the other side of the movement: the operator's `float`, or `payouts` for money at the bank or on its
   * way there.
   */
  counter_account: Generated<'float' | 'payouts'>;
  reference: string;
  balance_after: number;
  /** Why an operator moved the money; null for a payout. */
  reason: string | null;
  /** The name of the operator who moved the money; null for a payout. */
  actor: string | null;
}

interface CustomerRow extends OwnedRow {
  sequence: Generated<number>;
  id: string;
  email: string;
  first_name: string;
  last_name: string;
  phone: string | null;
  /**
   * The text that a search matches. It is stored in lower case, because neither SQLite nor PostgreSQL converts the case
   * of all letters.
   */
  search_text: string;
  updated_at: number;
}

/**
 * The list position of a deleted customer. It is kept because a client that reads the list page by page can still send
 * the customer's id in the query parameter `up_to`.
 */
interface DeletedCustomerRow extends Omit<OwnedRow, 'created_at'> {
  id: string;
  sequence: number;
  deleted_at: number;
}

/** The stored response to a request with an idempotency key, or the stored rejection of an operator's movement. */
interface StoredResponseRow extends OwnedRow {
  key: string;
  /** SHA-256 of the request's route and body. A repeated request has the same fingerprint; see `requestFingerprint`. */
  fingerprint: string;
  status: number;
  /** The body as JSON text. */
  body: string;
}

/** An event about an operator. The row is deleted once the registry has the event. */
interface OperatorEventRow {
  sequence: Generated<number>;
  /** The id of the request that caused the event. */
  id: string;
  at: number;
  /** The event as JSON, without id and time. */
  event: string;
}

/** The tables of the services. `sequence` is the order in which records were created, even within one millisecond. */
export interface ServicesTables {
  wallets: WalletRow;
  payouts: PayoutRow;
  transactions: TransactionRow;
  customers: CustomerRow;
  deleted_customers: DeletedCustomerRow;
  answers: StoredResponseRow;
  operator_events: OperatorEventRow;
}
