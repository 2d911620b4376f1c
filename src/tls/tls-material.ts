import { createHash } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { OperatorError } from '../config/operator-error.js';
import { readOperatorFile, alwaysSecret } from '../config/operator-file.js';
import { readCertificate } from './certificate.js';
import type { Certificate } from './certificate.js';

interface CertificateFiles {
  readonly certFile: string;
  readonly keyFile: string;
}

/** The files of a TLS endpoint. */
export interface TlsFiles extends CertificateFiles {
  readonly certificates: readonly CertificateFiles[];
  readonly ticketKeysFile: string | null;
  readonly clientCaFile: string | null;
}

/** The validated contents of the files of a TLS endpoint. */
export interface TlsMaterial {
  /** The first certificate is the default, for clients without SNI or with a name that no other certificate covers. */
  readonly certificates: readonly [Certificate, ...Certificate[]];
  /** Session ticket keys, 48 bytes; null if the process generates its own. */
  readonly ticketKeys: Buffer | null;
  /** PEM of the CAs that sign client certificates; null if not configured. */
  readonly clientCa: Buffer | null;
  /** SHA-256 of all files, for detecting changes. */
  readonly digest: string;
}

const ticketKeysBytes = 48;
const maxPemBytes = 1024 * 1024;

/**
 * Reads and validates all files of a TLS endpoint.
 * @throws OperatorError for the first unusable file
 */
export async function readTlsMaterial(files: TlsFiles): Promise<TlsMaterial> {
  const first = await readCertificate(files.certFile, files.keyFile);
  const others: Certificate[] = [];
  for (const { certFile, keyFile } of files.certificates) others.push(await readCertificate(certFile, keyFile));
  const ticketKeys = await readTicketKeys(files.ticketKeysFile);
  const clientCa = files.clientCaFile === null ? null : await readAuthority(files.clientCaFile);
  const hash = createHash('sha256');
  for (const { cert, key } of [first, ...others]) hash.update(cert).update('\0').update(key).update('\0');
  const digest = hash
    .update(ticketKeys ?? '')
    .update('\0')
    .update(clientCa ?? '')
    .digest('hex');
  return { certificates: [first, ...others], ticketKeys, clientCa, digest };
}

async function readTicketKeys(file: string | null): Promise<Buffer | null> {
  if (file === null) return null;
  const keys = await readOperatorFile(file, 'The file of TLS session ticket keys', ticketKeysBytes, alwaysSecret);
  if (keys.length === ticketKeysBytes) return keys;
  throw new OperatorError(
    `The file of TLS session ticket keys ${file} has ${keys.length} bytes; expected ${ticketKeysBytes}.`,
  );
}

/**
 * Reads a PEM file with the certificates of CAs.
 * @throws OperatorError if the file cannot be read or has no certificate
 */
export async function readAuthority(file: string): Promise<Buffer> {
  const ca = await readOperatorFile(file, 'The CA certificate', maxPemBytes);
  try {
    createSecureContext({ ca, cert: ca });
  } catch (error) {
    throw new OperatorError(`The CA certificate ${file} is not a PEM certificate.`, { cause: error });
  }
  return ca;
}

/**
 * Returns why new certificates must not replace the certificates in use; null if the replacement is allowed. Ignores
 * unchanged certificates: otherwise one that has expired would prevent the renewal of the others.
 */
export function problemOf({ certificates }: TlsMaterial, inUse: TlsMaterial, now: number): string | null {
  for (const { file, cert, key, notBefore, notAfter } of certificates) {
    if (inUse.certificates.some((one) => one.file === file && one.cert.equals(cert) && one.key.equals(key))) continue;
    if (notAfter <= now) return `The certificate ${file} has expired.`;
    if (notBefore > now) return `The certificate ${file} is not valid yet.`;
  }
  return null;
}

const dayMilliseconds = 86_400_000;

/** A warning about a certificate, and whether clients already reject the certificate. */
export interface ExpiryWarning {
  readonly warning: string;
  readonly isOver: boolean;
}

/**
 * Returns warnings about certificates that have expired, are not valid yet, or expire soon. Soon means within 14 days,
 * or within the last third of a short validity period.
 */
export function expiryWarnings({ certificates }: Pick<TlsMaterial, 'certificates'>, now: number): ExpiryWarning[] {
  return certificates.flatMap(({ file, notBefore, notAfter }): ExpiryWarning[] => {
    if (notAfter <= now) return [{ warning: `the certificate ${file} expired on ${dayOf(notAfter)}`, isOver: true }];
    if (notBefore > now)
      return [{ warning: `the certificate ${file} is not valid before ${dayOf(notBefore)}`, isOver: true }];
    const soon = Math.min(14 * dayMilliseconds, (notAfter - notBefore) / 3);
    if (notAfter - now > soon) return [];
    return [{ warning: `the certificate ${file} expires on ${dayOf(notAfter)}`, isOver: false }];
  });
}

function dayOf(moment: number): string {
  return new Date(moment).toISOString();
}
