import { createPrivateKey, X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { OperatorError } from '../config/operator-error.js';
import { readOperatorFile, alwaysSecret } from '../config/operator-file.js';

/** A certificate with its intermediates and private key, and the data of the leaf certificate. */
export interface Certificate {
  /** Path of the certificate file, which identifies the certificate in messages. */
  readonly file: string;
  /** The certificate with its intermediates, in PEM format. */
  readonly cert: Buffer;
  /** The private key, in PEM format. */
  readonly key: Buffer;
  /** The DNS names of the subjectAltName in lower case. A wildcard `*.` covers exactly one label. */
  readonly names: readonly string[];
  /** `rsa`, `ec` or another key type. A server uses one certificate per name and key type. */
  readonly keyType: string;
  /** The leaf certificate. */
  readonly x509: X509Certificate;
  /** When the certificate becomes valid, in milliseconds since 1970. */
  readonly notBefore: number;
  /** When the certificate expires, in milliseconds since 1970. */
  readonly notAfter: number;
}

const maxPemBytes = 1024 * 1024;

/**
 * Reads a certificate and its private key. Validates that both are PEM and that they belong together.
 * @throws OperatorError for unusable files
 */
export async function readCertificate(certFile: string, keyFile: string): Promise<Certificate> {
  const cert = await readOperatorFile(certFile, 'The certificate', maxPemBytes);
  const key = await readOperatorFile(keyFile, 'The private key', maxPemBytes, alwaysSecret);
  usable({ cert }, `The certificate ${certFile} is not a PEM certificate.`);
  usable({ key }, `The private key ${keyFile} must be an unencrypted private key in PEM format.`);
  const x509 = new X509Certificate(cert);
  // OpenSSL accepts a private key whose type differs from the certificate's, but then every handshake fails.
  if (!x509.checkPrivateKey(createPrivateKey(key)))
    throw new OperatorError(`The certificate ${certFile} and the private key ${keyFile} do not belong together.`);
  usable({ cert, key }, `The certificate ${certFile} and the private key ${keyFile} cannot be used together.`);
  const { subjectAltName = '', validFrom, validTo, publicKey } = x509;
  return {
    file: certFile,
    cert,
    key,
    names: [...subjectAltName.matchAll(/(?:^|, )DNS:([a-z0-9*._-]+)/gi)].map(([, name = '']) => name.toLowerCase()),
    x509,
    keyType: publicKey.asymmetricKeyType ?? 'unknown',
    notBefore: Date.parse(validFrom),
    notAfter: Date.parse(validTo),
  };
}

/** Whether a certificate covers a DNS name, given in lower case (RFC 6125 6.4.3). */
export function covers({ names }: Certificate, name: string): boolean {
  const dot = name.indexOf('.');
  return names.includes(name) || (dot !== -1 && names.includes(`*${name.slice(dot)}`));
}

function usable(part: { cert?: Buffer; key?: Buffer }, sentence: string): void {
  try {
    createSecureContext(part);
  } catch (error) {
    throw new OperatorError(sentence, { cause: error });
  }
}
