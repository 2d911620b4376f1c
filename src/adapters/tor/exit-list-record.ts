import Type, { Compile, type Static } from '../../typebox/typebox.js';
import { maxExits } from './admitted-exits.js';

const moment = Type.String({ pattern: '^\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}:\\d{2}\\.\\d{3}Z$' });
const validator = Type.Union([Type.String({ maxLength: 256 }), Type.Null()]);
const digest = Type.String({ pattern: '^[0-9a-f]{64}$' });

const storedList = Type.Object({
  /** When its source last had it, or said that it still has. */
  confirmedAt: moment,
  /** The list's own date; null where it has none. The former release knows neither of the two. */
  datedAt: Type.Optional(Type.Union([moment, Type.Null()])),
  datedBy: Type.Optional(Type.Union([Type.Literal('list'), Type.Literal('server'), Type.Literal('file'), Type.Null()])),
  etag: validator,
  lastModified: validator,
  leftOut: Type.Integer({ minimum: 0 }),
  /** SHA-256 of the addresses in their order, a line each. */
  digest,
  addresses: Type.Array(Type.String({ maxLength: 45 }), { minItems: 1, maxItems: maxExits }),
});

const storedSource = Type.Object({
  id: Type.String({ pattern: '^[0-9a-f]{32}$' }),
  source: Type.String({ maxLength: 4096 }),
  /** When it was last read, with success or without. */
  attemptedAt: moment,
  /** Attempts in a row that failed. */
  failures: Type.Integer({ minimum: 0, maximum: 1_000_000 }),
  problem: Type.Union([Type.String({ maxLength: 4096 }), Type.Null()]),
  /** The last good list; null: there never was one. */
  list: Type.Union([storedList, Type.Null()]),
});

const record = Type.Object({
  version: Type.Literal(1),
  digest: Type.Union([digest, Type.Null()]),
  size: Type.Integer({ minimum: 0 }),
  time: moment,
  sources: Type.Array(storedSource, { maxItems: 128 }),
});

/** A source as it stands in a record. */
export type StoredSource = Static<typeof storedSource>;

/** The list of Tor exits as it is kept in the key store and on disk: each source's last good one, and how that was had. */
export type ExitListRecord = Static<typeof record>;

const recordForm = Compile(record);
/** Enough for a full list of a full set of sources; a longer text is no record of ours. */
const maxRecordLength = 64 * 1024 * 1024;

/** A text that is no record of the list of Tor exits. */
class InvalidExitListRecord extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'InvalidExitListRecord';
  }
}

/** @throws an error that says what is wrong with it, and quotes nothing of it */
export function parseExitListRecord(text: string): ExitListRecord {
  if (text.length > maxRecordLength) throw new InvalidExitListRecord('it is too long');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new InvalidExitListRecord('it is not JSON');
  }
  if (recordForm.Check(value)) return value;
  throw new InvalidExitListRecord('it is no record of a list of Tor exits in version 1');
}
