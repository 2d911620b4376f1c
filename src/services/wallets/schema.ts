import { withPurpose } from '../../rest/openapi/json-schema.js';
import { pagingQuery } from '../../rest/paging.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { currency, id, timestamp, uuid } from '../fields.js';
import { upTo } from '../list-query.js';

/** The query of the list of wallets. */
export const walletsQuery = Type.Object({
  ...pagingQuery.properties,
  currency: Type.Optional(withPurpose(currency, 'Only wallets in this currency')),
  up_to: Type.Optional(upTo(uuid)),
});

/** The parsed query of the list of wallets. */
export type WalletsQuery = Static<typeof walletsQuery>;

/** A merchant's wallet, with its balance in minor units. The default wallet pays payouts that name no wallet. */
export const walletSchema = Type.Object(
  {
    id,
    currency,
    balance: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, examples: [1_000_000] }),
    isDefault: Type.Boolean({ examples: [true] }),
    createdAt: timestamp,
  },
  { title: 'Wallet' },
);

/** A merchant's wallet. */
export type Wallet = Readonly<Static<typeof walletSchema>>;
