import { keyPrefixes } from '../../policy/key-format.js';
import { keylessLine, line } from '../../rest/line.js';
import { pagingQuery } from '../../rest/paging.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { statusTime } from '../fields.js';
import { confirmations } from './ip-allowlist.js';

const mostEntries = 1000;
const name = keylessLine(100);
const keyForms = Object.values(keyPrefixes).join('|').toUpperCase();
const statusWord = Type.String({
  pattern: new RegExp(`^(?!.*(?:${keyForms}))[A-Z][A-Z_]{0,31}$`),
  description: 'a word in upper case, such as ACTIVE, INACTIVE or SUSPENDED, that does not look like a key',
});
const goLive = Type.Boolean({ description: 'true or false' });
const confirm = Type.Array(Type.Enum([...confirmations]), {
  maxItems: confirmations.length,
  description: `a list with any of ${confirmations.join(', ')}`,
});

function allowlist(entries: string) {
  return Type.Union([Type.Null(), Type.Array(Type.String({ maxLength: 300 }), { maxItems: mostEntries })], {
    description: `null, or a list of at most ${mostEntries} ${entries}`,
  });
}

const ipAllowlist = allowlist('IP addresses and CIDRs');
const originAllowlist = allowlist('hosts');

/** The fields of a merchant that occur both in requests and in imports. */
export const merchantFields = { name, status: statusWord, goLive, ipAllowlist, originAllowlist, confirm };

/** The body of `POST /merchants`. */
export const newMerchantBody = Type.Object({
  name,
  status: Type.Optional(statusWord),
  goLive: Type.Optional(goLive),
  ipAllowlist: Type.Optional(ipAllowlist),
  originAllowlist: Type.Optional(originAllowlist),
  confirm: Type.Optional(confirm),
});

/** The body of `PATCH /merchants/:id`: the fields to change. */
export const merchantChangesBody = Type.Object(
  {
    name: Type.Optional(name),
    status: Type.Optional(statusWord),
    goLive: Type.Optional(goLive),
    ipAllowlist: Type.Optional(ipAllowlist),
    originAllowlist: Type.Optional(originAllowlist),
    confirm: Type.Optional(confirm),
    revision: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: Number.MAX_SAFE_INTEGER,
        description:
          'a whole number: the revision on which the change is based; nothing is changed if the merchant has another revision',
      }),
    ),
  },
  { minProperties: 1 },
);

/** The query of `GET /merchants`. */
export const merchantsQuery = Type.Object({
  ...pagingQuery.properties,
  name: Type.Optional(line(100)),
  status: Type.Optional(statusWord),
});

const optionalList = Type.Union([Type.Null(), Type.Array(Type.String())]);

/** A merchant in the admin API. */
export const merchantSchema = Type.Object({
  id: Type.String(),
  name: Type.String(),
  status: Type.String(),
  goLive: Type.Boolean(),
  ipAllowlist: optionalList,
  originAllowlist: optionalList,
  revision: Type.Integer(),
  createdAt: Type.String({ format: 'date-time' }),
  updatedAt: Type.String({ format: 'date-time' }),
  statusChangedAt: statusTime,
});

/** A merchant in the admin API. */
export type Merchant = Readonly<Static<typeof merchantSchema>>;

const count = Type.Integer({ minimum: 0 });

/**
 * A merchant as lists show it: with the number of its active keys, and the numbers of all requests and of refused
 * requests in the last 24 hours.
 */
export const listedMerchantSchema = Type.Object({
  ...merchantSchema.properties,
  // Optional, because a registry of the previous release does not send this field.
  counts: Type.Optional(
    Type.Union([Type.Null(), Type.Object({ keys: count, requests: count, refused: count })], {
      description:
        'the number of active keys, and the numbers of requests and of refused requests in the last 24 hours; null if the caller lacks the permission usage:read',
    }),
  ),
});

/** The body of a request for a new merchant. */
export type NewMerchant = Static<typeof newMerchantBody>;

/** The body of a request that changes a merchant. */
export type MerchantChanges = Static<typeof merchantChangesBody>;
