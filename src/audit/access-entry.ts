import { parseSealedLine } from './sealed-line.js';
import Type, { Compile, type Static } from '../typebox/typebox.js';

const text = Type.Optional(Type.String());

/** What search, summary and explain read of the line of a request; all else is left as it stands. */
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
  client: Type.Optional(Type.Object({ ip: text, geo: Type.Optional(Type.Object({ country_iso_code: text })) })),
  source: Type.Optional(Type.Object({ ip: text })),
  tls: Type.Optional(Type.Object({})),
  organization: Type.Optional(Type.Object({ id: text })),
  gateway: Type.Object({
    route: text,
    key: Type.Optional(Type.Object({ id: text, fingerprint: text })),
    aggregate: Type.Optional(
      Type.Object({
        count: Type.Integer({ minimum: 1 }),
        codes: Type.Record(Type.String(), Type.Integer({ minimum: 1 })),
      }),
    ),
  }),
});

const entries = Compile(entrySchema);

/** The line of a request, or of several that share it. */
export type AccessEntry = Static<typeof entrySchema>;

/** Reads a line; null where it is not the line of a request: a checkpoint, say, or damaged. */
export function parseAccessEntry(line: string): AccessEntry | null {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return null;
  }
  return entries.Check(value) ? value : null;
}

/** The line of a request as it stands in a log. */
export interface FoundEntry {
  readonly entry: AccessEntry;
  /** As it stands. */
  readonly line: string;
  /** Whether it has a chain's place and hash, as every line of a gateway: what has not was put there by somebody else. */
  readonly isSealed: boolean;
}

/** Reads a line of a log; null where it is not the line of a request. */
export function findEntry(bytes: Buffer | null): FoundEntry | null {
  if (bytes === null) return null;
  const line = bytes.toString('utf8');
  const entry = parseAccessEntry(line);
  return entry === null ? null : { entry, line, isSealed: parseSealedLine(bytes) !== null };
}

/** How many requests a line stands for, by their codes. @param code counts those with this one alone */
export function requestsIn(
  { event, gateway: { aggregate } }: AccessEntry,
  code?: string,
): [code: string, count: number][] {
  const all = aggregate === undefined ? [[event.code, 1] as [string, number]] : Object.entries(aggregate.codes);
  return code === undefined ? all : all.filter(([one]) => one === code);
}

/** Says that lines were left out; empty where none were. */
export function leftOutText(count: number): string {
  if (count === 0) return '';
  const [lines, are] = count === 1 ? ['line that looks', 'is'] : ['lines that look', 'are'];
  return `${count} ${lines} like a request's ${are} left out: no line of a chain, put there or damaged. See audit verify.\n`;
}

/** The address from which a request came: the client's, or its peer's where nobody could tell the client. */
export function addressOf({ client, source }: AccessEntry): string | null {
  return client?.ip ?? source?.ip ?? null;
}
