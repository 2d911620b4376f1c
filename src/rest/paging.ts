import Type, { type Static } from '../typebox/typebox.js';
import { describedAs, withPurpose } from './openapi/json-schema.js';

const largestPage = 999_999_999;
const largestPerPage = 100;
const defaultPerPage = 20;

/** Query parameters of every paged list. */
export const pagingQuery = Type.Object({
  page: Type.Optional(
    withPurpose(
      describedAs(
        Type.String({ pattern: /^[1-9][0-9]{0,8}$/, description: `a whole number from 1 to ${largestPage}` }),
        Type.Integer({ minimum: 1, maximum: largestPage, default: 1, examples: [1] }),
      ),
      'Page of the list; default 1',
    ),
  ),
  per_page: Type.Optional(
    withPurpose(
      describedAs(
        Type.String({ pattern: /^(?:[1-9][0-9]?|100)$/, description: `a whole number from 1 to ${largestPerPage}` }),
        Type.Integer({ minimum: 1, maximum: largestPerPage, default: defaultPerPage, examples: [defaultPerPage] }),
      ),
      'Records per page; default 20',
    ),
  ),
});

/** The requested page of a list. Page numbers start at 1. */
export interface Paging {
  readonly page: number;
  readonly perPage: number;
}

/** One page of a list, and the number of records in the whole list. */
export interface Page<Item> {
  readonly items: readonly Item[];
  readonly totalRecords: number;
}

/** Reads page number and page size from the query of a paged list. */
export function pagingOf(query: Static<typeof pagingQuery>): Paging {
  return { page: Number(query.page ?? 1), perPage: Number(query.per_page ?? defaultPerPage) };
}

/** Returns the SQL offset and limit of the requested page. */
export function rangeOf({ page, perPage }: Paging): { offset: number; limit: number } {
  return { offset: (page - 1) * perPage, limit: perPage };
}
