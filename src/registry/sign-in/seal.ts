import { createCipheriv, createDecipheriv, hkdfSync } from 'node:crypto';

const algorithm = 'aes-256-gcm';
const nonceBytes = 12;
const tagBytes = 16;

/**
 * Encrypts secrets of the provider for the database. The key is derived from the client secret. The database does not
 * contain the client secret, so a stolen copy of the database reveals none of the encrypted secrets.
 */
export class SecretSeal {
  readonly #key: Buffer;
  readonly #random: (size: number) => Buffer;

  constructor(clientSecret: string, random: (size: number) => Buffer) {
    this.#key = Buffer.from(hkdfSync('sha256', clientSecret, '', 'merchant-gateway sign-in secrets 1', 32));
    this.#random = random;
  }

  /**
   * Encrypts a secret.
   * @param owner the id of the row that stores the result; decryption needs the same id
   */
  seal(secret: string, owner: string): string {
    const nonce = this.#random(nonceBytes);
    const cipher = createCipheriv(algorithm, this.#key, nonce).setAAD(Buffer.from(owner));
    const sealed = [cipher.update(secret, 'utf8'), cipher.final()];
    return Buffer.concat([nonce, cipher.getAuthTag(), ...sealed]).toString('base64url');
  }

  /** Decrypts a secret; null if it was encrypted for another row or with another client secret. */
  open(text: string, owner: string): string | null {
    const bytes = Buffer.from(text, 'base64url');
    try {
      const nonce = bytes.subarray(0, nonceBytes);
      const decipher = createDecipheriv(algorithm, this.#key, nonce, { authTagLength: tagBytes });
      decipher.setAAD(Buffer.from(owner)).setAuthTag(bytes.subarray(nonceBytes, nonceBytes + tagBytes));
      return decipher.update(bytes.subarray(nonceBytes + tagBytes), undefined, 'utf8') + decipher.final('utf8');
    } catch {
      return null;
    }
  }
}
