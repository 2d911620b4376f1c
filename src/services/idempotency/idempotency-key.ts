import type { FastifyRequest } from 'fastify';
import type { Problem } from '../../rest/envelope.js';
import { Refusal } from '../../rest/refusal.js';

const keyForm = /^[!-~]{1,255}$/;
const problem = {
  path: 'Idempotency-Key',
  message: 'Idempotency-Key must be given once, and be 1 to 255 visible ASCII characters without spaces',
};

/** The OpenAPI description of the `Idempotency-Key` header. */
export const idempotencyKeyParameter = {
  name: 'Idempotency-Key',
  in: 'header',
  required: false,
  description:
    'Identifies this request. Repeating it with the same key within 24 hours returns the same response and has no further effect.',
  schema: { type: 'string', pattern: keyForm.source, examples: ['4f6c0d3e-invoice-42'] },
  example: '4f6c0d3e-invoice-42',
} as const;

/**
 * Returns the request's idempotency key; null without the header. An empty key is rejected: the client would otherwise
 * wrongly expect protection against duplicates. Node joins repeated headers with a comma and a space, and `keyForm`
 * rejects the space.
 * @throws Refusal 422 for an invalid key
 */
export function idempotencyKeyIn({ headers }: FastifyRequest): string | null {
  const key = headers['idempotency-key'];
  if (key === undefined) return null;
  if (!isKey(key)) throw Refusal.invalid([problem]);
  return key;
}

/** Returns the problem of an invalid idempotency key; used if the request has other problems too. */
export function idempotencyKeyProblems({ headers }: FastifyRequest): readonly Problem[] {
  const key = headers['idempotency-key'];
  return key === undefined || isKey(key) ? [] : [problem];
}

function isKey(key: string | string[]): key is string {
  return typeof key === 'string' && keyForm.test(key);
}
