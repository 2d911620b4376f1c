import { createPublicKey, generateKeyPairSync, randomBytes, X509Certificate } from 'node:crypto';
import { access, constants, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { DemoTokenFiles } from './demo-administrators.js';
import { OperatorError } from '../../config/operator-error.js';

const renewBeforeMilliseconds = 86_400_000;

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
      throw new OperatorError(`The data directory ${wanted} cannot be written: ${reason ?? code}.`, { cause: error });
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

  get operatorsTokenFile(): string {
    return this.file('operators-token');
  }

  get signingKeyFile(): string {
    return this.file('signing-key.pem');
  }

  /** The files of the key pair with which the registry signs services tokens (which the operators' API accepts). */
  get servicesTokenKeyFiles(): { readonly privateKey: string; readonly publicKey: string } {
    return { privateKey: this.file('services-token-key.pem'), publicKey: this.file('services-token-key.pub') };
  }

  get recordSecretFile(): string {
    return this.file('record-secret');
  }

  get logSecretFile(): string {
    return this.file('access-log-secret');
  }

  /** Creates the certificate if it is missing, has expired, or expires within a day. */
  async ensureCertificate(now: Date): Promise<void> {
    if (await this.#hasCertificate(now)) return;
    const { createSelfSigned } = await import('./self-signed.js'); // loaded lazily, because it is large
    const { cert, key } = await createSelfSigned(now);
    await this.#write(this.keyFile, key, { mode: 0o600 });
    await this.#write(this.certFile, cert, {});
  }

  /** Creates the file with the administrators' token, if it is missing. */
  async ensureAdminToken(): Promise<void> {
    await this.#writeSecret(this.adminTokenFile);
  }

  /** Creates the file with the operators' token of the services, if it is missing. */
  async ensureOperatorsToken(): Promise<void> {
    await this.#writeSecret(this.operatorsTokenFile);
  }

  /** Creates the file with the secret that authenticates records in the store, if it is missing. */
  async ensureRecordSecret(): Promise<void> {
    await this.#writeSecret(this.recordSecretFile);
  }

  /** Creates the file with the secret of the access log, if it is missing. */
  async ensureLogSecret(): Promise<void> {
    await this.#writeSecret(this.logSecretFile);
  }

  /**
   * Creates the file with the key that signs assertions (JWTs that name the merchant) for upstreams, if it is missing.
   */
  async ensureSigningKey(): Promise<void> {
    await this.#writeKey(this.signingKeyFile);
  }

  /** Creates the file with the key that signs services tokens, if it is missing, and the file with its public key. */
  async ensureServicesTokenKey(): Promise<void> {
    const { privateKey, publicKey } = this.servicesTokenKeyFiles;
    await this.#writeKey(privateKey);
    const pem = createPublicKey(await readFile(privateKey)).export({ type: 'spki', format: 'pem' });
    await this.#write(publicKey, pem.toString(), {});
  }

  /** Runs `act`. If `act` throws, first closes the directory, so that a temporary one is removed. */
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
    await this.#write(file, `${this.#storeId}\n`, { flag: 'wx' });
    this.#storeId = (await readFile(file, 'utf8')).trim();
    if (!/^[0-9a-f]{16}$/.test(this.#storeId)) throw new OperatorError(`The file ${file} is damaged. Delete it.`);
  }

  async #writeKey(file: string): Promise<void> {
    const { privateKey } = generateKeyPairSync('ed25519');
    const pem = privateKey.export({ type: 'pkcs8', format: 'pem' });
    await this.#write(file, pem.toString(), { mode: 0o600, flag: 'wx' });
  }

  async #writeSecret(file: string): Promise<void> {
    await this.#write(file, `${randomBytes(32).toString('hex')}\n`, { mode: 0o600, flag: 'wx' });
  }

  /** Writes a file. With the flag `wx`, an existing file is not overwritten. */
  async #write(file: string, text: string, options: { mode?: number; flag?: string }): Promise<void> {
    try {
      await writeFile(file, text, options);
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code ?? 'unknown reason';
      if (code === 'EEXIST') return;
      throw new OperatorError(`The file ${file} cannot be written: ${code}.`, { cause: error });
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
