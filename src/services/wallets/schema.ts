/** A merchant's wallet. */
export interface Wallet {
  readonly id: string;
  readonly currency: string;
  /** In minor units. */
  readonly balance: number;
  /** Whether payouts that name no wallet are paid from it, in its currency. */
  readonly isDefault: boolean;
  readonly createdAt: string;
}
