import { createPublicKey, generateKeyPairSync, randomBytes, X509Certificate } from 'node:crypto';
import { access, constants, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { OperatorError } from '../../config/operator-error.js';

const renewBeforeMilliseconds = 86_400_000;

/** The files with the tokens of the demo administrators. */
export interface DemoTokenFiles {
  readonly owner: string;
  readonly support: string;
  readonly member: string;
  readonly treasurer: string;
  /** The file with the token with which the services send events to the registry. */
  readonly services: string;
}

/** The directory for the files of `dev`: a directory of the user, or a temporary one that `close` removes. */
export class DataDirectory {
  #storeId = randomBytes(8).toString('hex');

  private constructor(
    readonly path: string,
    readonly kept: boolean,
  ) {}

  /**
   * Opens the directory, and creates it if it is missing.
   * @param directory path; null: a temporary directory
   * @throws OperatorError if the directory cannot be created or written, or its file `store-id` is damaged
   */
  static async open(directory: string | null): Promise<DataDirectory> {
    const wanted = directory === null ? path.join(tmpdir(), 'merchant-gateway-dev-') : path.resolve(directory);
    try {
      if (directory === null) return new DataDirectory(await mkdtemp(wanted), false);
      await mkdir(wanted, { recursive: true, mode: 0o700 });
      await access(wanted, constants.W_OK | constants.X_OK);
      const kept = new DataDirectory(wanted, true);
      await kept.#keepStoreId();
      return kept;
    } catch (error) {
      if (error instanceof OperatorError) throw error;
      const code = (error as NodeJS.ErrnoException).code ?? 'unknown reason';
      const reason = { EACCES: 'permission denied', EEXIST: 'it is a file', ENOTDIR: 'a part of its path is a file' }[
        code
      ];
      throw new OperatorError(
        `The data directory ${wanted} cannot be written: ${reason ?? code}. Choose another directory with --data-dir.`,
        { cause: error },
      );
    }
  }

  file(name: string): string {
    return path.join(this.path, name);
  }

  /**
   * Prefix of the Redis keys, different for each directory. A registry removes all records under its prefix that are
   * not in its database. If two registries used the same Redis and prefix, each would remove the records of the other.
   */
  get redisPrefix(): string {
    return `mg-dev:${this.#storeId}:`;
  }

  get certFile(): string {
    return this.file('certificate.pem');
  }

  get keyFile(): string {
    return this.file('private-key.pem');
  }

  /** The file with the shared token of the admin API. */
  get adminTokenFile(): string {
    return this.file('admin-token');
  }

  /** The files with the tokens of the demo administrators. */
  get demoTokenFiles(): DemoTokenFiles {
    return {
      ...{ owner: this.file('owner-token'), support: this.file('support-token'), member: this.file('member-token') },
      ...{ treasurer: this.file('treasurer-token'), services: this.file('services-trail-token') },
    };
  }

  /** The file with the shared token of the operators' API. */
  get operatorsTokenFile(): string {
    return this.file('operators-token');
  }

  /** The file with the key that signs assertions, which are JWTs that name the merchant to upstreams. */
  get signingKeyFile(): string {
    return this.file('signing-key.pem');
  }

  /**
   * The files of the key pair for services tokens. The registry signs the tokens, and the operators' API accepts them.
   */
  get servicesTokenKeyFiles(): { readonly privateKey: string; readonly publicKey: string } {
    return { privateKey: this.file('services-token-key.pem'), publicKey: this.file('services-token-key.pub') };
  }

  /** The file with the secret that authenticates records in the store. */
  get recordSecretFile(): string {
    return this.file('record-secret');
  }

  /** The file with the secret of the access log. */
  get logSecretFile(): string {
    return this.file('access-log-secret');
  }

  /**
   * Creates the files that are missing: the certificate, the shared tokens, the secrets and the keys. Replaces a
   * certificate that has expired or expires within a day. Always writes the public key of services tokens.
   * @throws OperatorError if a file cannot be written
   */
  async ensureFiles(now: Date): Promise<void> {
    await this.#ensureCertificate(now);
    for (const file of [this.adminTokenFile, this.operatorsTokenFile, this.logSecretFile, this.recordSecretFile])
      await writeNewFile(file, `${randomBytes(32).toString('hex')}\n`);
    const { privateKey, publicKey } = this.servicesTokenKeyFiles;
    for (const file of [this.signingKeyFile, privateKey]) {
      const created = generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' });
      await writeNewFile(file, created.toString());
    }
    const pem = createPublicKey(await readFile(privateKey)).export({ type: 'spki', format: 'pem' });
    await this.#write(publicKey, pem.toString(), {});
  }

  /** Runs `act`. If `act` throws, calls `close` and rethrows the error. */
  async orClose<Result>(act: () => Result): Promise<Result> {
    try {
      return act();
    } catch (error) {
      await this.close();
      throw error;
    }
  }

  /** Removes a temporary directory; a directory of the user stays. */
  async close(): Promise<void> {
    if (!this.kept) await rm(this.path, { recursive: true, force: true });
  }

  async #keepStoreId(): Promise<void> {
    const file = this.file('store-id');
    await writeNewFile(file, `${this.#storeId}\n`);
    this.#storeId = (await readFile(file, 'utf8')).trim();
    if (!/^[0-9a-f]{16}$/.test(this.#storeId)) throw new OperatorError(`The file ${file} is damaged. Delete it.`);
  }

  async #ensureCertificate(now: Date): Promise<void> {
    if (await this.#hasCertificate(now)) return;
    const { createSelfSigned } = await import('./self-signed.js'); // loaded lazily, because it is large
    const { cert, key } = await createSelfSigned(now);
    await this.#write(this.keyFile, key, { mode: 0o600 });
    await this.#write(this.certFile, cert, {});
  }

  async #write(file: string, text: string, options: { mode?: number }): Promise<void> {
    try {
      await writeFile(file, text, options);
    } catch (error) {
      throw cannotWrite(file, error);
    }
  }

  async #hasCertificate(now: Date): Promise<boolean> {
    try {
      await access(this.keyFile);
      const { validTo } = new X509Certificate(await readFile(this.certFile));
      return Date.parse(validTo) - now.getTime() > renewBeforeMilliseconds;
    } catch {
      return false;
    }
  }
}

/**
 * Creates a file that only this user can read. An existing file stays unchanged, without an error. If the file cannot
 * be written, for example on a full disk, deletes it: the next start would take an incomplete file for a whole secret.
 * @throws OperatorError
 */
export async function writeNewFile(file: string, text: string): Promise<void> {
  try {
    await writeFile(file, text, { mode: 0o600, flag: 'wx' });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return;
    await rm(file, { force: true }).catch(() => undefined);
    throw cannotWrite(file, error);
  }
}

function cannotWrite(file: string, error: unknown): OperatorError {
  const { code = 'unknown reason' } = error as NodeJS.ErrnoException;
  return new OperatorError(`The file ${file} cannot be written: ${code}.`, { cause: error });
}
