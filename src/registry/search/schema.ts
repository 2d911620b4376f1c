import { keylessLine } from '../../rest/line.js';
import { withPurpose } from '../../rest/openapi/json-schema.js';
import Type, { type Static } from '../../typebox/typebox.js';

const longestText = 100;

/** The query of `GET /search`. */
export const searchQuery = Type.Object({
  q: withPurpose(
    keylessLine(longestText),
    'A part of the name of a merchant, the whole name of an administrator, an IP address, or the whole id of a merchant, key, administrator or HTTP request',
  ),
});

/** One result of a search. */
export const foundSchema = Type.Object({
  kind: Type.Enum(['merchant', 'key', 'refusal', 'event', 'address', 'administrator']),
  id: Type.String({
    description:
      'the id of the merchant, key or administrator; for a refusal or an event, the id of its HTTP request; for an address, the address',
  }),
  name: Type.Union([Type.Null(), Type.String()], {
    description:
      'the name of a merchant or an administrator, the label of a key, the code of a refusal, or the action of an event',
  }),
  merchantId: Type.Union([Type.Null(), Type.String()]),
});

/** One result of a search. */
export type Found = Static<typeof foundSchema>;
