import type { Span, TraceExport } from '../../gateway/ports.js';
import { Agent, request } from 'undici';
import { connectionProblem } from '../checkpoints/connection-problem.js';

/** Destination and sampling of spans. */
export interface OtlpTracesOptions {
  readonly endpoint: string;
  /** Token of the `authorization: Bearer` header; null: the header is not sent. */
  readonly token: string | null;
  /** PEM of the CA that signed the endpoint's certificate; null: the CAs that Node trusts. */
  readonly ca: Buffer | null;
  readonly sampleOneIn: number;
  /** OTLP resource attributes, which identify this process. */
  readonly resource: Readonly<Record<string, string>>;
  readonly random: () => number;
  /** Called once with the reason when spans cannot be sent, and with null when they can be sent again. */
  readonly onProblem: (problem: string | null) => void;
  /** Milliseconds for which spans are collected before a batch is sent; default five seconds. */
  readonly gatherMilliseconds?: number;
  /** Timeout for the whole request and response, in milliseconds; default five seconds. */
  readonly timeoutMilliseconds?: number;
}

const maxWaiting = 4_096;
const maxTogether = 512;
const defaultTimeoutMilliseconds = 5_000;
const maxResponseBytes = 128 * 1024;

/**
 * Sends spans to an OTLP collector in batches. Drops spans if the buffer is full or an export fails: a slow or
 * unreachable collector must not cost memory or delay the requests of clients.
 */
export class OtlpTraces implements TraceExport {
  readonly #options: OtlpTracesOptions;
  readonly #agent: Agent;
  readonly #timeoutMilliseconds: number;
  readonly #headers: Record<string, string>;
  readonly #stats = { exported: 0, dropped: 0 };
  #waiting: Span[] = [];
  #timer: NodeJS.Timeout | null = null;
  #sending: Promise<void> | null = null;
  #problem: string | null = null;

  constructor(options: OtlpTracesOptions) {
    const { token, ca, timeoutMilliseconds = defaultTimeoutMilliseconds } = options;
    this.#options = options;
    this.#timeoutMilliseconds = timeoutMilliseconds;
    this.#headers = {
      'content-type': 'application/json',
      ...(token === null ? {} : { authorization: `Bearer ${token}` }),
    };
    this.#agent = new Agent({
      connections: 1,
      headersTimeout: timeoutMilliseconds,
      bodyTimeout: timeoutMilliseconds,
      connect: { timeout: timeoutMilliseconds, rejectUnauthorized: true, ...(ca === null ? {} : { ca }) },
    });
  }

  sample(): boolean {
    const { sampleOneIn, random } = this.#options;
    return sampleOneIn === 1 || random() * sampleOneIn < 1;
  }

  take(span: Span): void {
    if (this.#waiting.length >= maxWaiting) {
      this.#stats.dropped += 1;
      return;
    }
    this.#waiting.push(span);
    if (this.#waiting.length >= maxTogether) this.#sendNext();
    else this.#sendLater();
  }

  stats(): { readonly exported: number; readonly dropped: number } {
    return { ...this.#stats };
  }

  async close(milliseconds: number): Promise<void> {
    const giveUp = setTimeout(() => void this.#agent.destroy(), milliseconds);
    do {
      this.#sendNext();
      await this.#sending;
    } while (this.#waiting.length > 0);
    clearTimeout(giveUp);
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#agent.destroy();
  }

  #sendLater(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      this.#sendNext();
    }, this.#options.gatherMilliseconds ?? 5_000).unref();
  }

  /** Sends the next batch, unless a request is already running: a slow collector must not get additional load. */
  #sendNext(): void {
    if (this.#sending !== null || this.#waiting.length === 0) return;
    const spans = this.#waiting.splice(0, maxTogether);
    this.#sending = this.#send(spans).then((problem) => {
      this.#sending = null;
      this.#stats[problem === null ? 'exported' : 'dropped'] += spans.length;
      if ((problem === null) !== (this.#problem === null)) this.#options.onProblem(problem);
      this.#problem = problem;
      if (this.#waiting.length >= maxTogether) this.#sendNext();
      else if (this.#waiting.length > 0) this.#sendLater();
    });
  }

  /**
   * Sends spans to the collector. Never rejects.
   * @returns why the collector did not accept the spans; null if it accepted them
   */
  async #send(spans: readonly Span[]): Promise<string | null> {
    const signal = AbortSignal.timeout(this.#timeoutMilliseconds); // limits the total time, even if bytes trickle in
    try {
      const { statusCode, body } = await request(this.#options.endpoint, {
        dispatcher: this.#agent,
        method: 'POST',
        headers: this.#headers,
        body: otlpBody(spans, this.#options.resource),
        signal,
      });
      await body.dump({ limit: maxResponseBytes, signal });
      return statusCode >= 200 && statusCode <= 299 ? null : `the collector responded with status ${statusCode}`;
    } catch (error) {
      return `the collector cannot be reached: ${connectionProblem(error)}`;
    }
  }
}

const serverKind = 2;
const errorStatus = 2;

/** Encodes spans as the JSON form of one OTLP `ExportTraceServiceRequest`. */
function otlpBody(spans: readonly Span[], resource: Readonly<Record<string, string>>): string {
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

/** Converts milliseconds to nanoseconds. Returns a string, because the number exceeds the precision of a double. */
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
