/** A movement on a wallet, as a merchant sees it. Movements are added and never changed. */
export interface Transaction {
  readonly id: number;
  /** In minor units, always positive; the type tells the direction. */
  readonly amount: number;
  readonly currency: string;
  readonly type: 'credit' | 'debit';
  readonly status: 'success';
  readonly reference: string;
  readonly walletId: string;
  /** The payout that this movement paid for. */
  readonly payoutId: string | null;
  readonly balanceAfter: number;
  readonly createdAt: string;
}
