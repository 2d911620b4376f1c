import Type, { Compile, type Static } from '../typebox/typebox.js';

const text = Type.Optional(Type.String());

/** What search, summary and explain read of the line of a request; all else is left as it stands. */
const entrySchema = Type.Object({
  '@timestamp': Type.String(),
  event: Type.Object({
    action: Type.Literal('api-request'),
    code: Type.String(),
    outcome: text,
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
  }),
});

const entries = Compile(entrySchema);

/** The line of a request. */
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

/** The address from which a request came: the client's, or its peer's where nobody could tell the client. */
export function addressOf({ client, source }: AccessEntry): string | null {
  return client?.ip ?? source?.ip ?? null;
}
