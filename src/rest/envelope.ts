import { maskKeys } from '../telemetry/mask-keys.js';
import type { Page, Paging } from './paging.js';

/** One thing that is wrong with a request, and where. */
export interface Problem {
  /** The field, or empty for the body as a whole. */
  readonly path: string;
  readonly message: string;
}

/** The answer that carries what was asked for. */
export function success<Data>(message: string, data: Data) {
  return { success: true, message, data } as const;
}

/** The answer that carries one page of a list. */
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
 * The answer to a request that was not carried out. No key is in it: callers give keys as names, and answers are kept. Beside a
 * code there is always a list of problems, however short: the command lines of former releases take other data for a stranger's.
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
