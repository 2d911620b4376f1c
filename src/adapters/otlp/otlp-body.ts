import type { Span } from '../../gateway/ports.js';

const serverKind = 2;
const errorStatus = 2;

/** Spans as OTLP has them in JSON: one `ExportTraceServiceRequest`. */
export function otlpBody(spans: readonly Span[], resource: Readonly<Record<string, string>>): string {
  const scope = { name: 'merchant-gateway' };
  return JSON.stringify({
    resourceSpans: [
      { resource: { attributes: attributesOf(resource) }, scopeSpans: [{ scope, spans: spans.map(otlpSpan) }] },
    ],
  });
}

function otlpSpan({ traceId, spanId, parentId, name, startedAt, duration, failed, attributes }: Span): object {
  return {
    traceId,
    spanId,
    ...(parentId === null ? {} : { parentSpanId: parentId }),
    name,
    kind: serverKind,
    startTimeUnixNano: nanoseconds(startedAt),
    endTimeUnixNano: nanoseconds(startedAt + duration),
    attributes: attributesOf(attributes),
    status: failed ? { code: errorStatus } : {},
  };
}

/** As a text: the number is beyond what a double holds. */
function nanoseconds(milliseconds: number): string {
  return String(BigInt(Math.round(milliseconds * 1_000)) * 1_000n);
}

function attributesOf(attributes: Readonly<Record<string, string | number>>): object[] {
  return Object.entries(attributes).map(([key, value]) => ({ key, value: valueOf(value) }));
}

function valueOf(value: string | number): object {
  if (typeof value === 'string') return { stringValue: value };
  return Number.isInteger(value) ? { intValue: String(value) } : { doubleValue: value };
}
