import Type, { type Static } from '../typebox/typebox.js';
import { withPurpose } from './openapi/json-schema.js';

const largestPerPage = 100;

/** The query of every paged list. */
export const pagingQuery = Type.Object({
  page: Type.Optional(
    withPurpose(
      Type.String({ pattern: /^[1-9][0-9]{0,8}$/, description: 'a whole number from 1 to 999999999' }),
      'Which page of the list; 1 unless given',
    ),
  ),
  per_page: Type.Optional(
    withPurpose(
      Type.String({ pattern: /^(?:[1-9][0-9]?|100)$/, description: `a whole number from 1 to ${largestPerPage}` }),
      'How many records there are to a page; 20 unless given',
    ),
  ),
});

/** Which part of a list is asked for. Pages are counted from 1. */
export interface Paging {
  readonly page: number;
  readonly perPage: number;
}

/** One page of a list, and how long the whole list is. */
export interface Page<Item> {
  readonly items: readonly Item[];
  readonly totalRecords: number;
}

/** Reads the query of a paged list. */
export function pagingOf(query: Static<typeof pagingQuery>): Paging {
  return { page: Number(query.page ?? 1), perPage: Number(query.per_page ?? 20) };
}

/** The place in a list, and the length, of the page that is asked for. */
export function rangeOf({ page, perPage }: Paging): { offset: number; limit: number } {
  return { offset: (page - 1) * perPage, limit: perPage };
}
