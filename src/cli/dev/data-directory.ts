import { generateKeyPairSync, randomBytes, X509Certificate } from 'node:crypto';
import { access, constants, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { OperatorError } from '../../config/operator-error.js';

const renewBeforeMilliseconds = 86_400_000;

/** Where `dev` keeps its files: a directory of the user's, or a temporary one that ends with the process. */
export class DataDirectory {
  #storeId = randomBytes(8).toString('hex');

  private constructor(
    readonly path: string,
    readonly kept: boolean,
  ) {}

  /**
   * @param directory null: a temporary one
   * @throws OperatorError when it cannot be made or written
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
      const reason = { EACCES: 'permission denied', EEXIST: 'it is a file', ENOTDIR: 'a part of it is a file' }[code];
      throw new OperatorError(`The data directory ${wanted} cannot be written: ${reason ?? code}.`, { cause: error });
    }
  }

  file(name: string): string {
    return path.join(this.path, name);
  }

  /** Apart from the records of everything else on the same Redis, another `dev` too: a registry removes what it does not know. */
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

  get operatorsTokenFile(): string {
    return this.file('operators-token');
  }

  get signingKeyFile(): string {
    return this.file('signing-key.pem');
  }

  get recordSecretFile(): string {
    return this.file('record-secret');
  }

  get logSecretFile(): string {
    return this.file('access-log-secret');
  }

  /** Makes the certificate, or a new one where the old one has ended or soon will. */
  async ensureCertificate(now: Date): Promise<void> {
    if (await this.#hasCertificate(now)) return;
    const { createSelfSigned } = await import('./self-signed.js'); // heavy, and nothing else needs it
    const { cert, key } = await createSelfSigned(now);
    await this.#write(this.keyFile, key, { mode: 0o600 });
    await this.#write(this.certFile, cert, {});
  }

  /** Makes the token of administrators, where there is none yet. */
  async ensureAdminToken(): Promise<void> {
    await this.#writeSecret(this.adminTokenFile);
  }

  /** Makes the token of the services' operators, where there is none yet. */
  async ensureOperatorsToken(): Promise<void> {
    await this.#writeSecret(this.operatorsTokenFile);
  }

  /** Makes the secret that seals records, where there is none yet. */
  async ensureRecordSecret(): Promise<void> {
    await this.#writeSecret(this.recordSecretFile);
  }

  /** Makes the secret of the access log, where there is none yet. */
  async ensureLogSecret(): Promise<void> {
    await this.#writeSecret(this.logSecretFile);
  }

  /** Makes the key that signs who calls for upstreams, where there is none yet. */
  async ensureSigningKey(): Promise<void> {
    const { privateKey } = generateKeyPairSync('ed25519');
    const pem = privateKey.export({ type: 'pkcs8', format: 'pem' });
    await this.#write(this.signingKeyFile, pem.toString(), { mode: 0o600, flag: 'wx' });
  }

  /** Does something that may fail, and then leaves nothing behind. */
  async orClose<Result>(act: () => Result): Promise<Result> {
    try {
      return act();
    } catch (error) {
      await this.close();
      throw error;
    }
  }

  /** Removes a temporary directory; one of the user's stays. */
  async close(): Promise<void> {
    if (!this.kept) await rm(this.path, { recursive: true, force: true });
  }

  async #keepStoreId(): Promise<void> {
    const file = this.file('store-id');
    await this.#write(file, `${this.#storeId}\n`, { flag: 'wx' });
    this.#storeId = (await readFile(file, 'utf8')).trim();
    if (!/^[0-9a-f]{16}$/.test(this.#storeId)) throw new OperatorError(`The file ${file} is damaged. Delete it.`);
  }

  async #writeSecret(file: string): Promise<void> {
    await this.#write(file, `${randomBytes(32).toString('hex')}\n`, { mode: 0o600, flag: 'wx' });
  }

  /** With the flag `wx` a file that is there already stays as it is. */
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
