import { Reader, type Response } from 'maxmind';
import { OperatorError } from '../../config/operator-error.js';
import { readOperatorFile } from '../../config/operator-file.js';
import type { IpAddress } from '../../policy/ip-address.js';
import { fileStamp, isTransientFileError } from '../files/file-stamp.js';

/** Name and expected type of a GeoIP database. */
export interface DatabaseKind {
  /** The name with which an error message begins, such as `The country database`. */
  readonly name: string;
  /**
   * Pattern that the type in the database's metadata must match. Lookups in a database of another type would find
   * nothing, without an error.
   */
  readonly type: RegExp;
}

/** Limit for a database file: about twice the size of the largest commercial database. */
const maxDatabaseBytes = 1024 * 1024 * 1024;
const probes = 256;

/**
 * A database file in MaxMind format, reloaded when it is replaced. If the new file is unusable, the previous database
 * stays in use.
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

  /**
   * Opens and checks a database file.
   * @throws OperatorError for a file that is unreadable, broken, or of another type
   */
  static async open<Found extends Response>(file: string, kind: DatabaseKind): Promise<DatabaseFile<Found>> {
    const stamp = await fileStamp(file);
    return new DatabaseFile<Found>(file, kind, await readDatabase<Found>(file, kind), stamp);
  }

  /**
   * Returns the database entry of an address; null if the database has no entry.
   * @throws the error of the maxmind library if the database is damaged at this entry
   */
  find(address: IpAddress): Found | null {
    // A database with only IPv4 addresses has no entry for an IPv6 address. The library would use the first bits of the
    // address, and return the entry of an unrelated IPv4 address.
    if (address.family === 6 && this.#reader.metadata.ipVersion === 4) return null;
    return this.#reader.get(address.text);
  }

  /**
   * Reloads the file if it was replaced or written.
   * @returns whether a new database is loaded
   * @throws OperatorError if the file cannot be loaded: on every call if the error is temporary, otherwise only once
   * until the file changes again
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
      `${name} ${file} cannot be used: it is not a complete database in MaxMind format (.mmdb). Download the file again.`,
      {
        cause: error,
      },
    );
  }
  const { databaseType } = reader.metadata;
  if (type.test(databaseType)) return reader;
  throw new OperatorError(
    `${name} ${file} cannot be used: its type is "${databaseType.slice(0, 64)}", so it is the wrong kind of database. Configure another file.`,
  );
}

/**
 * Detects a truncated or damaged database by its size and by lookups of sample addresses. The library itself accepts
 * any file whose end is intact.
 */
function probe(reader: Reader<Response>, bytes: Buffer): void {
  const { metadata } = reader;
  if (metadata.nodeCount < 1 || metadata.searchTreeSize + 16 > bytes.length) throw new Error('it is truncated');
  for (let index = 0; index < probes; index += 1) {
    reader.get(`${index}.${index}.0.1`);
    if (metadata.ipVersion === 6) reader.get(`${(0x2000 + index * 32).toString(16)}::1`);
  }
}
