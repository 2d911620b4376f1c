import { keylessText } from './line.js';
import { Refusal } from './refusal.js';

const longestReason = 200;

/**
 * Decodes the reason in the header `x-reason`; null if the header is missing or empty. Clients percent-encode the
 * reason, because a header can contain only ASCII reliably.
 * @throws Refusal 400 for a reason that is malformed, too long, blank, on several lines, or contains an API key
 */
export function reasonIn(text: string | readonly string[] | undefined): string | null {
  if (text === undefined || text === '') return null;
  const reason = typeof text === 'string' ? decoded(text) : null;
  if (reason !== null && reason.length <= longestReason && keylessText.test(reason)) return reason;
  throw new Refusal(
    400,
    `x-reason must be a percent-encoded text of 1 to ${longestReason} characters on one line, without an API key`,
  );
}

function decoded(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}
