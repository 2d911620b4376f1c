import { createPrivateKey, X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { OperatorError } from '../../config/operator-error.js';
import { readOperatorFile, alwaysSecret } from '../../config/operator-file.js';

/** A certificate with its intermediates and its private key, and what its first certificate says. */
export interface Certificate {
  /** Where it was read from; its name for operators. */
  readonly file: string;
  /** PEM. */
  readonly cert: Buffer;
  /** PEM. */
  readonly key: Buffer;
  /** The DNS names that it covers, in lower case; `*.` for every name one label below. */
  readonly names: readonly string[];
  /** `rsa`, `ec`, …: a server has one certificate of each type for a name. */
  readonly keyType: string;
  /** Validity, in milliseconds since 1970. */
  readonly notBefore: number;
  readonly notAfter: number;
}

const maxPemBytes = 1024 * 1024;

/**
 * Reads a certificate and its key, and makes sure that they are PEM and belong together before anybody relies on them.
 * @throws OperatorError
 */
export async function readCertificate(certFile: string, keyFile: string): Promise<Certificate> {
  const cert = await readOperatorFile(certFile, 'The certificate', maxPemBytes);
  const key = await readOperatorFile(keyFile, 'The private key', maxPemBytes, alwaysSecret);
  usable({ cert }, `The certificate ${certFile} is not a PEM certificate.`);
  usable({ key }, `The private key ${keyFile} is not a PEM private key without a passphrase.`);
  const x509 = new X509Certificate(cert);
  // OpenSSL itself takes a key of another type than the certificate's, and then fails every handshake.
  if (!x509.checkPrivateKey(createPrivateKey(key)))
    throw new OperatorError(`The certificate ${certFile} and the private key ${keyFile} do not belong together.`);
  usable({ cert, key }, `The certificate ${certFile} and the private key ${keyFile} cannot be used together.`);
  const { subjectAltName = '', validFrom, validTo, publicKey } = x509;
  return {
    file: certFile,
    cert,
    key,
    names: [...subjectAltName.matchAll(/(?:^|, )DNS:([a-z0-9*._-]+)/gi)].map(([, name = '']) => name.toLowerCase()),
    keyType: publicKey.asymmetricKeyType ?? 'unknown',
    notBefore: Date.parse(validFrom),
    notAfter: Date.parse(validTo),
  };
}

/** Says whether a certificate covers a DNS name in lower case (RFC 6125 6.4.3). */
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
