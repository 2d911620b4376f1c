import { randomHex, uniqueId } from '../../telemetry/unique-id.js';
import { holdsKey } from '../../telemetry/mask-keys.js';

/** W3C Trace Context of a request: whose trace it belongs to, and the gateway's own part of that. */
export interface TraceContext {
  /** 32 hex digits. */
  readonly traceId: string;
  /** 16 hex digits: the parent of what the upstream does. */
  readonly spanId: string;
  /** The caller's part, 16 hex digits; null where it named none. */
  readonly parentId: string | null;
  /** Two hex digits. */
  readonly flags: string;
  /** Null where there is none, or where it belongs to a traceparent that cannot be used. */
  readonly state: string | null;
  /** Whether the gateway's own part is told to a trace store. */
  readonly taken: boolean;
}

/** Version 00, and any later one, of which only the first four fields are known. */
const traceparentForm = /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:$|-)/;
const notSampled = '00';
const sampled = '01';

/**
 * Takes the caller's trace, where it sent exactly one traceparent that is one, or begins another. A caller chooses
 * nothing but the trace's id: it is a name to search for, and proves nothing.
 * @param taken whether this request is a sample, which no caller has a say in: it could fill the store of traces. Null:
 *   traces are kept nowhere here, and the caller's own flags are passed on
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

/** Adds the headers by which an upstream goes on with the trace to a flat list of names and values. */
export function addTraceHeaders(headers: string[], { traceId, spanId, flags, state }: TraceContext): void {
  headers.push('traceparent', `00-${traceId}-${spanId}-${flags}`);
  if (state !== null) headers.push('tracestate', state);
}

const safeId = /^[A-Za-z0-9._-]{1,64}$/;

/**
 * The id of a request, given back in `x-request-id`. A trusted proxy's own id is kept where it is short and safe;
 * anybody else could make two requests look like one in the log.
 */
export function requestIdOf(values: readonly string[], fromTrustedProxy: boolean): string {
  const [value = ''] = values;
  return fromTrustedProxy && values.length === 1 && safeId.test(value) && !holdsKey(value) ? value : uniqueId();
}
