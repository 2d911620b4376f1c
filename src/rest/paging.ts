import Type, { type Static } from '../typebox/typebox.js';
import { shownAs, withPurpose } from './openapi/json-schema.js';

const largestPage = 999_999_999;
const largestPerPage = 100;
const defaultPerPage = 20;

/** The query of every paged list. */
export const pagingQuery = Type.Object({
  page: Type.Optional(
    withPurpose(
      shownAs(
        Type.String({ pattern: /^[1-9][0-9]{0,8}$/, description: `a whole number from 1 to ${largestPage}` }),
        Type.Integer({ minimum: 1, maximum: largestPage, default: 1, examples: [1] }),
      ),
      'Which page of the list; 1 unless given',
    ),
  ),
  per_page: Type.Optional(
    withPurpose(
      shownAs(
        Type.String({ pattern: /^(?:[1-9][0-9]?|100)$/, description: `a whole number from 1 to ${largestPerPage}` }),
        Type.Integer({ minimum: 1, maximum: largestPerPage, default: defaultPerPage, examples: [defaultPerPage] }),
      ),
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
  return { page: Number(query.page ?? 1), perPage: Number(query.per_page ?? defaultPerPage) };
}

/** The place in a list, and the length, of the page that is asked for. */
export function rangeOf({ page, perPage }: Paging): { offset: number; limit: number } {
  return { offset: (page - 1) * perPage, limit: perPage };
}
