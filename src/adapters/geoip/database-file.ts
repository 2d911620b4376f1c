import { Reader, type Response } from 'maxmind';
import { OperatorError } from '../../config/operator-error.js';
import { readOperatorFile } from '../../config/operator-file.js';
import type { IpAddress } from '../../policy/ip-address.js';
import { fileStamp, isTransientFileError } from '../files/file-stamp.js';

/** Name and expected type of a database. */
export interface DatabaseKind {
  /** Its name at the start of a sentence: `The country database`. */
  readonly name: string;
  /** The type in the database must match this pattern. Otherwise each look-up would find nothing, without an error. */
  readonly type: RegExp;
}

/** The largest commercial database has about half this size. */
const maxDatabaseBytes = 1024 * 1024 * 1024;
const probes = 256;

/**
 * A database in MaxMind format on disk, reloaded when it is replaced. A broken replacement leaves the previous one in
 * use.
 */
export class DatabaseFile<Found extends Response> {
  readonly #file: string;
  readonly #kind: DatabaseKind;
  #reader: Reader<Found>;
  #stamp: string | null;

  private constructor(file: string, kind: DatabaseKind, reader: Reader<Found>, stamp: string | null) {
    this.#file = file;
    this.#kind = kind;
    this.#reader = reader;
    this.#stamp = stamp;
  }

  /** @throws OperatorError for a file that is unreadable, broken, or of another type */
  static async open<Found extends Response>(file: string, kind: DatabaseKind): Promise<DatabaseFile<Found>> {
    const stamp = await fileStamp(file);
    return new DatabaseFile<Found>(file, kind, await readDatabase<Found>(file, kind), stamp);
  }

  /**
   * The entry of an address; null without one.
   * @throws the library's error when that part of the database is damaged
   */
  find(address: IpAddress): Found | null {
    // A database with IPv4 only would read the first bits of an IPv6 address as an unrelated IPv4 address.
    if (address.family === 6 && this.#reader.metadata.ipVersion === 4) return null;
    return this.#reader.get(address.text);
  }

  /**
   * Reloads the file if it was replaced or written.
   * @returns whether a new database is loaded
   * @throws OperatorError once for each unusable file, and every time for an error that may pass
   */
  async reload(): Promise<boolean> {
    const stamp = await fileStamp(this.#file);
    if (stamp === this.#stamp) return false;
    try {
      this.#reader = await readDatabase<Found>(this.#file, this.#kind);
      this.#stamp = stamp;
      return true;
    } catch (error) {
      if (!isTransientFileError(error)) this.#stamp = stamp;
      throw error;
    }
  }
}

async function readDatabase<Found extends Response>(
  file: string,
  { name, type }: DatabaseKind,
): Promise<Reader<Found>> {
  const bytes = await readOperatorFile(file, name, maxDatabaseBytes);
  let reader: Reader<Found>;
  try {
    reader = new Reader<Found>(bytes);
    probe(reader, bytes);
  } catch (error) {
    throw new OperatorError(
      `${name} ${file} cannot be used: it is not a complete database in MaxMind format (.mmdb).`,
      {
        cause: error,
      },
    );
  }
  const { databaseType } = reader.metadata;
  if (type.test(databaseType)) return reader;
  throw new OperatorError(
    `${name} ${file} cannot be used: it is of the type "${databaseType.slice(0, 64)}", which is another kind of database.`,
  );
}

/** The library accepts any file with an intact end. Only lookups reveal damage. */
function probe(reader: Reader<Response>, bytes: Buffer): void {
  const { metadata } = reader;
  if (metadata.nodeCount < 1 || metadata.searchTreeSize + 16 > bytes.length) throw new Error('it is truncated');
  for (let index = 0; index < probes; index += 1) {
    reader.get(`${index}.${index}.0.1`);
    if (metadata.ipVersion === 6) reader.get(`${(0x2000 + index * 32).toString(16)}::1`);
  }
}
