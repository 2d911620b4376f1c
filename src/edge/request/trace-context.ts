import { randomHex, uniqueId } from '../../telemetry/unique-id.js';

/** W3C Trace Context of a request: the trace, and the gateway's own span in it. */
export interface TraceContext {
  /** The trace id, 32 hex digits. */
  readonly traceId: string;
  /** The gateway's span, 16 hex digits. It is the parent of the upstream's spans. */
  readonly spanId: string;
  /** The caller's span, 16 hex digits; null without a valid traceparent. */
  readonly parentId: string | null;
  /** The trace flags, two hex digits. */
  readonly flags: string;
  /** The tracestate header; null if it is missing or the traceparent is invalid. */
  readonly state: string | null;
  /** Whether the gateway's span is exported. */
  readonly taken: boolean;
}

/** Matches a traceparent of version 00 or later. Later versions can append fields, which the gateway ignores. */
const traceparentForm = /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:$|-)/;
const notSampled = '00';
const sampled = '01';

/**
 * Continues the caller's trace if the request has exactly one valid traceparent; otherwise starts a new trace. The
 * caller chooses the trace id, so the id helps in a search but is no evidence. If traces are exported, the caller's
 * sampling flag is ignored, because a caller could fill the trace store. Otherwise the caller's flags are passed on.
 * @param taken whether this request is sampled; null if traces are not exported
 */
export function traceContextOf(
  traceparent: readonly string[],
  tracestate: readonly string[],
  taken: boolean | null,
): TraceContext {
  const drawn = randomHex(24);
  const spanId = drawn.slice(0, 16);
  const own = taken === true ? sampled : notSampled;
  const [value = ''] = traceparent;
  const [, traceId, parentId, flags] = (traceparent.length === 1 ? traceparentForm.exec(value) : null) ?? [];
  const known = traceId !== undefined && (!value.startsWith('00-') || value.length === 55);
  if (!known || parentId === undefined || flags === undefined) {
    return { traceId: drawn.slice(16), spanId, parentId: null, flags: own, state: null, taken: taken === true };
  }
  return {
    traceId,
    spanId,
    parentId,
    flags: taken === null ? flags : own,
    state: tracestate.length === 0 ? null : tracestate.join(','),
    taken: taken === true,
  };
}

/** Appends the trace headers for the upstream to a list of alternating names and values. */
export function addTraceHeaders(headers: string[], { traceId, spanId, flags, state }: TraceContext): void {
  headers.push('traceparent', `00-${traceId}-${spanId}-${flags}`);
  if (state !== null) headers.push('tracestate', state);
}

const safeId = /^[A-Za-z0-9._-]{1,64}$/;

/**
 * Returns the request id for the `x-request-id` header. An id from a trusted proxy is reused if it is short and safe.
 * Ids that clients send directly are ignored, because a client could give two requests the same id in the log.
 * @param containsKey whether a text contains an API key, which must not reach the log
 */
export function requestIdOf(
  values: readonly string[],
  fromTrustedProxy: boolean,
  containsKey: (text: string) => boolean,
): string {
  const [value = ''] = values;
  return fromTrustedProxy && values.length === 1 && safeId.test(value) && !containsKey(value) ? value : uniqueId();
}
