import { createSecureContext } from 'node:tls';
import { OperatorError } from '../config/operator-error.js';
import { readOperatorFile } from '../config/operator-file.js';
import type { TlsIdentity } from './listener.js';

const maxPemBytes = 1024 * 1024;

/**
 * Reads a certificate and its key, and makes sure that they are PEM and belong together before anybody relies on them.
 * @throws OperatorError
 */
export async function readTlsIdentity(certFile: string, keyFile: string): Promise<TlsIdentity> {
  const cert = await readOperatorFile(certFile, 'The certificate', maxPemBytes);
  const key = await readOperatorFile(keyFile, 'The private key', maxPemBytes);
  usable({ cert }, `The certificate ${certFile} is not a PEM certificate.`);
  usable({ key }, `The private key ${keyFile} is not a PEM private key without a passphrase.`);
  usable({ cert, key }, `The certificate ${certFile} and the private key ${keyFile} do not belong together.`);
  return { cert, key };
}

function usable(part: Partial<TlsIdentity>, sentence: string): void {
  try {
    createSecureContext(part);
  } catch (error) {
    throw new OperatorError(sentence, { cause: error });
  }
}
