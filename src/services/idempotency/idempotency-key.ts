import type { FastifyRequest } from 'fastify';
import { Refusal } from '../../rest/refusal.js';

const keyForm = /^[!-~]{1,255}$/;
const problem = {
  path: 'Idempotency-Key',
  message: 'Idempotency-Key must be given once, and be 1 to 255 visible ASCII characters without spaces',
};

/** The header in the description of the API. */
export const idempotencyKeyParameter = {
  name: 'Idempotency-Key',
  in: 'header',
  required: false,
  description:
    'Names this request. Sent again under the same key within 24 hours it has the same answer once more, and no further effect.',
  schema: { type: 'string', pattern: keyForm.source, examples: ['4f6c0d3e-invoice-42'] },
  example: '4f6c0d3e-invoice-42',
} as const;

/**
 * The key under which a request was sent; null where there is none. An empty one is a mistake of the caller, who believes
 * to be protected. Node joins a repeated header with a comma and a space, which the form does not admit.
 * @throws Refusal
 */
export function idempotencyKeyIn({ headers }: FastifyRequest): string | null {
  const key = headers['idempotency-key'];
  if (key === undefined) return null;
  if (typeof key !== 'string' || !keyForm.test(key)) throw Refusal.invalid([problem]);
  return key;
}
