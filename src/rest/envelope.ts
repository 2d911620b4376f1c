import { maskKeys, maskTokens } from '../telemetry/mask-keys.js';
import type { Page, Paging } from './paging.js';

/** A problem with a request, and the field that causes the problem. */
export interface Problem {
  /** Name of the field; empty if the problem concerns the whole body. */
  readonly path: string;
  readonly message: string;
}

/** Builds the body of a success response. */
export function success<Data>(message: string, data: Data) {
  return { success: true, message, data } as const;
}

/** Builds the body of a success response with one page of a list. */
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
 * Builds the body of an error response. Masks API keys and administrators' tokens, because a client can send one as a
 * field name by mistake. The message would then repeat it, and the services store some responses. With a failure code,
 * `data.errors` is present even if it is empty, because command-line tools of earlier releases require this field.
 */
export function failure(
  message: string,
  problems: readonly Problem[] = [],
  code: string | null = null,
  details: Readonly<Record<string, string>> = {},
) {
  const errors = problems.map((problem) => ({ path: masked(problem.path), message: masked(problem.message) }));
  const data = code === null && errors.length === 0 ? null : { ...(code === null ? {} : { code }), ...details, errors };
  return { success: false, message: masked(message), data } as const;
}

function masked(text: string): string {
  return maskTokens(maskKeys(text));
}
