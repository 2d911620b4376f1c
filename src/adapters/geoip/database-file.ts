import { Reader, type Response } from 'maxmind';
import { OperatorError } from '../../config/operator-error.js';
import { readOperatorFile } from '../../config/operator-file.js';
import type { IpAddress } from '../../policy/ip-address.js';
import { fileStamp, mayPass } from '../files/file-stamp.js';

/** What a database must be for its place. */
export interface DatabaseKind {
  /** Its part in a sentence: `The country database`. */
  readonly name: string;
  /** What its type must say: another database would answer every question with nothing, and nobody would notice. */
  readonly type: RegExp;
}

/** The largest of those that are sold has about half of it. */
const maxDatabaseBytes = 1024 * 1024 * 1024;
const probes = 256;

/** A database in MaxMind format on disk, read again when it is replaced. A broken one leaves the one before in place. */
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

  /** @throws OperatorError where it cannot be read, is broken, or is another database */
  static async open<Found extends Response>(file: string, kind: DatabaseKind): Promise<DatabaseFile<Found>> {
    const stamp = await fileStamp(file);
    return new DatabaseFile<Found>(file, kind, await readDatabase<Found>(file, kind), stamp);
  }

  /**
   * What it has about an address; null where that is nothing.
   * @throws the library's error where the database is damaged at that place
   */
  find(address: IpAddress): Found | null {
    // Asked for IPv6, a database of IPv4 alone would read the first bits as an IPv4 address of somebody else.
    if (address.family === 6 && this.#reader.metadata.ipVersion === 4) return null;
    return this.#reader.get(address.text);
  }

  /**
   * Reads it again where it was replaced or written since.
   * @returns whether it is a new one now
   * @throws OperatorError once for each that cannot be used, and each time where that may pass
   */
  async reload(): Promise<boolean> {
    const stamp = await fileStamp(this.#file);
    if (stamp === this.#stamp) return false;
    try {
      this.#reader = await readDatabase<Found>(this.#file, this.#kind);
      this.#stamp = stamp;
      return true;
    } catch (error) {
      if (!mayPass(error)) this.#stamp = stamp;
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
    throw new OperatorError(`${name} ${file} cannot be used: it is not a whole database in MaxMind format (.mmdb).`, {
      cause: error,
    });
  }
  const { databaseType } = reader.metadata;
  if (type.test(databaseType)) return reader;
  throw new OperatorError(
    `${name} ${file} cannot be used: it is of the type "${databaseType.slice(0, 64)}", which is of another kind.`,
  );
}

/** The library takes what ends like a database; damage shows when it is asked. */
function probe(reader: Reader<Response>, bytes: Buffer): void {
  const { metadata } = reader;
  if (metadata.nodeCount < 1 || metadata.searchTreeSize + 16 > bytes.length) throw new Error('it is cut off');
  for (let index = 0; index < probes; index += 1) {
    reader.get(`${index}.${index}.0.1`);
    if (metadata.ipVersion === 6) reader.get(`${(0x2000 + index * 32).toString(16)}::1`);
  }
}
