import { parseSealedLine } from './sealed-line.js';
import Type, { Compile, type Static } from '../typebox/typebox.js';

const text = Type.Optional(Type.String());

/** The members that `search`, `summary`, `explain` and `unusual replay` read from a log line about requests. */
const entrySchema = Type.Object({
  '@timestamp': Type.String(),
  event: Type.Object({
    action: Type.Literal('api-request'),
    code: Type.String(),
    outcome: text,
    reason: text,
    duration: Type.Optional(Type.Number()),
  }),
  http: Type.Object({
    request: Type.Object({ id: text, method: text }),
    response: Type.Object({ status_code: Type.Number() }),
  }),
  url: Type.Optional(Type.Object({ path: text })),
  client: Type.Optional(
    Type.Object({
      ip: text,
      geo: Type.Optional(Type.Object({ country_iso_code: text })),
      as: Type.Optional(Type.Object({ number: Type.Optional(Type.Integer({ minimum: 0 })) })),
    }),
  ),
  source: Type.Optional(Type.Object({ ip: text })),
  tls: Type.Optional(Type.Object({})),
  user_agent: Type.Optional(Type.Object({ original: text })),
  organization: Type.Optional(Type.Object({ id: text })),
  gateway: Type.Object({
    route: text,
    key: Type.Optional(Type.Object({ id: text, fingerprint: text })),
    aggregate: Type.Optional(
      Type.Object({
        count: Type.Integer({ minimum: 1 }),
        codes: Type.Record(Type.String(), Type.Integer({ minimum: 1 })),
        source: text,
      }),
    ),
  }),
});

const entries = Compile(entrySchema);

/** A log line about one request, or about several requests that share the line. */
export type AccessEntry = Static<typeof entrySchema>;

/** The members of a log line that a summary counts and a search compares. */
export interface CountedEntry extends Pick<AccessEntry, '@timestamp' | 'url' | 'client' | 'source' | 'organization'> {
  readonly event: Pick<AccessEntry['event'], 'code'>;
  readonly http: { readonly request: Pick<AccessEntry['http']['request'], 'id'> };
  readonly gateway: Pick<AccessEntry['gateway'], 'key' | 'aggregate'>;
}

/** Parses a log line. Returns null if it is not about a request, for example a checkpoint or a damaged line. */
export function parseAccessEntry(line: string): AccessEntry | null {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return null;
  }
  return entries.Check(value) ? value : null;
}

/** A log line about a request: its parsed members and its text. */
export interface FoundEntry {
  readonly entry: AccessEntry;
  /** The unparsed line. */
  readonly line: string;
  /**
   * Whether the line is sealed: it has a hash chain id, a number and a hash. A gateway writes these in every line, so a
   * line without them was inserted or damaged.
   */
  readonly isSealed: boolean;
}

/**
 * Parses a log line. Returns null if the line is too long or not about a request.
 * @param bytes null if the line is too long
 */
export function findEntry(bytes: Buffer | null): FoundEntry | null {
  if (bytes === null) return null;
  const line = bytes.toString('utf8');
  const entry = parseAccessEntry(line);
  return entry === null ? null : { entry, line, isSealed: parseSealedLine(bytes) !== null };
}

/**
 * Returns how many requests a line is about, for each code.
 * @param code if given, counts only requests with this code
 */
export function requestsIn(
  { event, gateway: { aggregate } }: CountedEntry,
  code?: string,
): [code: string, count: number][] {
  const all = aggregate === undefined ? [[event.code, 1] as [string, number]] : Object.entries(aggregate.codes);
  return code === undefined ? all : all.filter(([one]) => one === code);
}

/** Returns a warning that lines were ignored; an empty text if the count is 0. */
export function ignoredLinesWarning(count: number): string {
  if (count === 0) return '';
  const [lines, them] = count === 1 ? ['line about a request is', 'it'] : ['lines about requests are', 'them'];
  return `${count} ${lines} ignored, because the hash chain of the log does not contain ${them}. Such lines were inserted or damaged: to find them, run "merchant-gateway audit verify".\n`;
}

/**
 * Returns the client's address; if it is unknown, the address of the connection's peer; null if both are unknown. If
 * several requests from one IPv4 address or IPv6 /64 share the line, returns that address or /64.
 */
export function addressOf({ client, source, gateway: { aggregate } }: CountedEntry): string | null {
  return aggregate?.source ?? client?.ip ?? source?.ip ?? null;
}
