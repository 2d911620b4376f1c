import { keylessLine } from '../../rest/line.js';
import { withPurpose } from '../../rest/openapi/json-schema.js';
import Type, { type Static } from '../../typebox/typebox.js';

const longestText = 100;

/** The query of `GET /search`. */
export const searchQuery = Type.Object({
  q: withPurpose(
    keylessLine(longestText),
    'A part of the name of a merchant, or the whole id of a merchant, key, administrator or request, or an IP address',
  ),
});

/** One result of a search. */
export const foundSchema = Type.Object({
  kind: Type.Enum(['merchant', 'key', 'refusal', 'event', 'address', 'administrator']),
  id: Type.String({ description: 'the id, or the address' }),
  name: Type.Union([Type.Null(), Type.String()], {
    description: 'the name of a merchant or an administrator, the label of a key, or the code of a refusal',
  }),
  merchantId: Type.Union([Type.Null(), Type.String()]),
});

/** One result of a search. */
export type Found = Static<typeof foundSchema>;
