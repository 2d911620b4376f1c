import Type, { type Static } from '../../typebox/typebox.js';
import { identifierForm } from '../fields.js';
import { keyEntrySchema, merchantEntrySchema } from '../imports/schema.js';

/** The query of `GET /exports`. */
export const exportQuery = Type.Object({
  after: Type.Optional(
    Type.String({ pattern: /^(?:merchant|key):[A-Za-z0-9_-]{0,64}$/, description: 'next of the page before' }),
  ),
  until: Type.Optional(Type.String({ pattern: /^[0-9]{1,15}$/, description: 'the revision that the first page told' })),
  merchantId: Type.Optional(Type.String({ pattern: identifierForm, description: 'the id of a merchant' })),
  environment: Type.Optional(Type.Enum(['live', 'test'], { description: 'live or test' })),
});

/** One page of an export. */
export const exportPageSchema = Type.Object({
  /** Each is one that can be imported: merchants, then keys. */
  entries: Type.Array(Type.Union([keyEntrySchema, merchantEntrySchema])),
  /** Of the newest change when it was asked for; as `until` it keeps out what is added while the rest is asked for. */
  revision: Type.Integer(),
  /** Where the next page begins; null after the last. */
  next: Type.Union([Type.Null(), Type.String()]),
});

/** One page of an export. */
export type ExportPage = Static<typeof exportPageSchema>;
