import { maskKeys } from '../telemetry/mask-keys.js';
import type { Page, Paging } from './paging.js';

/** A problem with a request, and where it is. */
export interface Problem {
  /** The field; empty for the whole body. */
  readonly path: string;
  readonly message: string;
}

/** A success response with its data. */
export function success<Data>(message: string, data: Data) {
  return { success: true, message, data } as const;
}

/** A success response with one page of a list. */
export function successPage<Item>(message: string, page: Page<Item>, { page: currentPage, perPage }: Paging) {
  return {
    success: true,
    message,
    data: page.items,
    meta: {
      total_records: page.totalRecords,
      current_page: currentPage,
      total_pages: Math.ceil(page.totalRecords / perPage),
      per_page: perPage,
    },
  } as const;
}

/**
 * The response to a request that was not carried out. Masks API keys: clients pass keys as names, and responses are
 * stored. With a code there is always a list of problems, even if empty: command lines of earlier releases reject other
 * `data`.
 */
export function failure(
  message: string,
  problems: readonly Problem[] = [],
  code: string | null = null,
  details: Readonly<Record<string, string>> = {},
) {
  const errors = problems.map((problem) => ({ path: maskKeys(problem.path), message: maskKeys(problem.message) }));
  const data = code === null && errors.length === 0 ? null : { ...(code === null ? {} : { code }), ...details, errors };
  return { success: false, message: maskKeys(message), data } as const;
}
