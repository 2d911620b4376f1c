import type { AnonymousIPResponse, AsnResponse, CountryResponse } from 'maxmind';
import type { GeoIp, GeoLocation } from '../../gateway/ports.js';
import type { IpAddress } from '../../policy/ip-address.js';
import { DatabaseFile } from './database-file.js';

/** The paths of the database files; null: not configured. */
export interface GeoIpFiles {
  readonly countryFile: string | null;
  readonly asnFile: string | null;
  readonly anonymousIpFile: string | null;
}

/** How a damaged database is handled, and callbacks for reloads and problems. */
export interface GeoIpOptions {
  /**
   * What the Tor check returns if the database of anonymous addresses is damaged at the entry of the client's address.
   * True: the check returns null for "unknown", and the request is denied. False: the check returns false, as for an
   * address that is no Tor exit.
   */
  readonly denyWhenUnavailable: boolean;
  readonly onReload: () => void;
  /** Called when a new version of a file cannot be loaded, and at the first lookup that finds a database damaged. */
  readonly onProblem: (error: unknown) => void;
}

interface Databases {
  readonly country: DatabaseFile<CountryResponse> | null;
  readonly asn: DatabaseFile<AsnResponse> | null;
  readonly anonymous: DatabaseFile<AnonymousIPResponse> | null;
}

/** How often the files are checked for a replacement. */
const checkMilliseconds = 10_000;
const countryCode = /^[A-Z]{2}$/;
const highestAsNumber = 2 ** 32 - 1;

/**
 * GeoIP lookups in independent databases in MaxMind format. If one database has no entry for an address, lookups in the
 * other databases still work.
 */
export class GeoIpDatabases implements GeoIp {
  readonly #databases: Databases;
  readonly #options: GeoIpOptions;
  readonly #damaged = new Set<unknown>();
  readonly #timer: NodeJS.Timeout;

  private constructor(databases: Databases, options: GeoIpOptions) {
    this.#databases = databases;
    this.#options = options;
    this.#timer = setInterval(() => void this.reload(), checkMilliseconds).unref();
  }

  /**
   * Opens the configured database files.
   * @throws OperatorError for a file that cannot be used
   */
  static async open(files: GeoIpFiles, options: GeoIpOptions): Promise<GeoIpDatabases> {
    const { countryFile, asnFile, anonymousIpFile } = files;
    const country = { name: 'The country database', type: /country|city|enterprise/i };
    const asn = { name: 'The database of autonomous systems', type: /asn|isp|enterprise/i };
    const anonymous = { name: 'The database of anonymous addresses', type: /anonymous/i };
    return new GeoIpDatabases(
      {
        country: countryFile === null ? null : await DatabaseFile.open(countryFile, country),
        asn: asnFile === null ? null : await DatabaseFile.open(asnFile, asn),
        anonymous: anonymousIpFile === null ? null : await DatabaseFile.open(anonymousIpFile, anonymous),
      },
      options,
    );
  }

  locate(address: IpAddress): GeoLocation {
    const { country, asn } = this.#databases;
    const code = this.#find(country, address)?.country?.iso_code;
    const number = this.#find(asn, address)?.autonomous_system_number;
    return {
      countryIsoCode: typeof code === 'string' && countryCode.test(code) ? code : null,
      asNumber: typeof number === 'number' && isAsNumber(number) ? number : null,
    };
  }

  isTorExit(address: IpAddress): boolean | null {
    const isExit = this.#isExit(address);
    if (isExit === true || address.family === 4 || address.embedded === null) return isExit;
    const embedsExit = this.#isExit(address.embedded);
    return embedsExit === false ? isExit : embedsExit;
  }

  /** Reloads the files that were replaced. Never rejects: problems are passed to `onProblem`. */
  async reload(): Promise<void> {
    for (const database of Object.values(this.#databases) as (DatabaseFile<CountryResponse> | null)[]) {
      try {
        if ((await database?.reload()) !== true) continue;
        this.#damaged.delete(database);
        this.#options.onReload();
      } catch (error) {
        this.#options.onProblem(error);
      }
    }
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #isExit(address: IpAddress): boolean | null {
    const found = this.#find(this.#databases.anonymous, address);
    // Undefined means a damaged database. Databases often omit a field that is false, so a missing field counts as
    // false.
    if (found === undefined) return this.#options.denyWhenUnavailable ? null : false;
    return found?.is_tor_exit_node === true;
  }

  /**
   * Returns the entry of an address. Null: the database has no entry or is not configured. Undefined: the database is
   * damaged at this entry.
   */
  #find<Found extends CountryResponse | AsnResponse | AnonymousIPResponse>(
    database: DatabaseFile<Found> | null,
    address: IpAddress,
  ): Found | null | undefined {
    try {
      return database?.find(address) ?? null;
    } catch (error) {
      if (!this.#damaged.has(database)) this.#options.onProblem(error);
      this.#damaged.add(database);
      return undefined;
    }
  }
}

function isAsNumber(number: number): boolean {
  return Number.isInteger(number) && number > 0 && number <= highestAsNumber;
}
