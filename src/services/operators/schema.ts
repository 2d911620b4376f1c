import { keylessLine, noKeyIn, noKeyWords } from '../../rest/line.js';
import { withPurpose } from '../../rest/openapi/json-schema.js';
import { pagingQuery } from '../../rest/paging.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { amount, currency, id, timestamp, textOrNull, uuid } from '../fields.js';

const environment = Type.Enum(['live', 'test'], { type: 'string', description: 'one of live, test' });
const merchantId = Type.String({
  pattern: /^[A-Za-z0-9_-]{1,64}$/,
  description: 'the id of a merchant: 1 to 64 letters, digits, - and _',
  examples: ['m_01JH3Z7Q4X'],
});
/** The id of a merchant in a request. Rejects an API key, because the ledger and the events would store the key. */
const givenMerchantId = Type.String({
  pattern: new RegExp(`${noKeyIn}[A-Za-z0-9_-]{1,64}$`),
  description: `the id of a merchant: 1 to 64 letters, digits, - and _, ${noKeyWords}`,
  examples: ['m_01JH3Z7Q4X'],
});

/** Pattern for the reference that an operator gives to a movement. */
export const referenceForm = new RegExp(`${noKeyIn}[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}$`);

/** The body of `POST /wallets`. */
export const newWalletBody = Type.Object({
  merchantId: givenMerchantId,
  environment,
  currency,
  isDefault: Type.Optional(
    Type.Boolean({ description: 'true or false (default true): whether payouts without a wallet id use this wallet' }),
  ),
  id: Type.Optional(uuid),
});

/**
 * The body of a movement. It repeats the currency and environment of the wallet. So a wrong wallet id is rejected if
 * the wallet with that id has another currency or environment.
 */
export const movementBody = Type.Object({
  amount,
  currency,
  environment,
  merchantId: Type.Optional(givenMerchantId),
  reference: Type.String({
    pattern: referenceForm,
    description: `1 to 100 letters, digits and . _ : / -, beginning with a letter or a digit, ${noKeyWords}`,
    examples: ['deposit-2026-0042'],
  }),
  reason: keylessLine(200, 'Deposit of 2026-01-31'),
});

/** The query of the list of wallets. */
export const operatorWalletsQuery = Type.Object({
  ...pagingQuery.properties,
  merchantId: Type.Optional(withPurpose(givenMerchantId, 'Only wallets of this merchant')),
  environment: Type.Optional(withPurpose(environment, 'Only wallets of this environment')),
  currency: Type.Optional(withPurpose(currency, 'Only wallets in this currency')),
});

/** The query of the list of a wallet's ledger entries. */
export const entriesQuery = Type.Object({
  ...pagingQuery.properties,
  reference: Type.Optional(withPurpose(movementBody.properties.reference, 'Only the entry with this reference')),
});

/** A wallet, as operators see it. Its balance is in minor units. */
export const operatorWalletSchema = Type.Object(
  {
    id,
    merchantId,
    environment,
    currency,
    balance: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
    isDefault: Type.Boolean(),
    /** Name of the operator who created the wallet; null if the wallet predates the ledger. */
    createdBy: textOrNull('alice'),
    createdAt: timestamp,
  },
  { title: 'OperatorWallet' },
);

/** A wallet, as operators see it. */
export type OperatorWallet = Readonly<Static<typeof operatorWalletSchema>>;

/** The response to `POST /wallets`. `isRepeated` is true if the wallet existed before. */
export const openedWalletSchema = Type.Object(
  { ...operatorWalletSchema.properties, isRepeated: Type.Boolean() },
  { title: 'OpenedWallet' },
);

const account = Type.String({
  description: 'an account: float (the operator), payouts (money sent to the bank), or the id of a wallet',
});

/** One row of the ledger: an amount that moved from one account to another. */
export const entrySchema = Type.Object(
  {
    id: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
    from: account,
    to: account,
    amount,
    currency,
    environment,
    merchantId,
    walletId: id,
    status: Type.Enum(['pending', 'successful', 'reversed'], { type: 'string' }),
    reference: Type.String(),
    reason: textOrNull('Deposit of 2026-01-31'),
    /** The name of the operator who moved the money; null for a payout. */
    actor: textOrNull('alice'),
    payoutId: Type.Union([id, Type.Null()]),
    /** The wallet's balance after this entry. */
    balanceAfter: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
    createdAt: timestamp,
  },
  { title: 'Entry' },
);

/** One row of the ledger. */
export type Entry = Readonly<Static<typeof entrySchema>>;

/** The response to a movement. `isRepeated` is true if an earlier request with the same reference moved the money. */
export const movedSchema = Type.Object(
  { ...entrySchema.properties, isRepeated: Type.Boolean() },
  { title: 'MovedEntry' },
);

/** The balance of an account. The accounts of an environment and currency add up to zero. */
export const accountSchema = Type.Object(
  {
    environment,
    currency,
    account: Type.Enum(['float', 'payouts', 'wallets'], { type: 'string' }),
    balance: Type.String({ pattern: /^(?:0|-?[1-9][0-9]*)$/ }),
  },
  { title: 'Account' },
);
