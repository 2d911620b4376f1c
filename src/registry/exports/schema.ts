import { noKeyIn } from '../../rest/line.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { identifierForm } from '../fields.js';
import { keyEntrySchema, merchantEntrySchema } from '../imports/schema.js';

/** The query of `GET /exports`. */
export const exportQuery = Type.Object({
  after: Type.Optional(
    Type.String({
      pattern: new RegExp(`${noKeyIn}(?:merchant|key):[A-Za-z0-9_-]{0,64}$`),
      description: 'the place where the page begins: the value of "next" in the response with the previous page',
    }),
  ),
  until: Type.Optional(
    Type.String({
      pattern: /^[0-9]{1,15}$/,
      description:
        'a whole number: records created after this revision are omitted. For later pages, send the "revision" of the first page',
    }),
  ),
  merchantId: Type.Optional(Type.String({ pattern: identifierForm, description: 'the id of a merchant' })),
  environment: Type.Optional(Type.Enum(['live', 'test'], { description: 'live or test' })),
});

/** One page of an export. */
export const exportPageSchema = Type.Object({
  /** Entries in the format of an import: merchants, then keys. */
  entries: Type.Array(Type.Union([keyEntrySchema, merchantEntrySchema])),
  /**
   * Revision (number) of the newest change. For the next pages, clients send the revision of the first page as `until`,
   * so that these pages omit records that were created later.
   */
  revision: Type.Integer(),
  /** Cursor of the next page; null on the last page. */
  next: Type.Union([Type.Null(), Type.String()]),
});

/** One page of an export. */
export type ExportPage = Static<typeof exportPageSchema>;
