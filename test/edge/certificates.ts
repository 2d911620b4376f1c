import { generate } from 'selfsigned';
import type { SelfSigned } from '../../src/cli/dev/self-signed.js';

const day = 86_400_000;

/** What a certificate says; what is left out is right for a server of today. */
export interface CertificateSetup {
  readonly keyType?: 'ec' | 'rsa';
  readonly names?: readonly string[];
  readonly notBefore?: number;
  readonly notAfter?: number;
  readonly ca?: SelfSigned;
}

/** Makes a certificate for a test, signed by itself or by `ca`. */
export async function makeCertificate(setup: CertificateSetup = {}): Promise<SelfSigned> {
  const { keyType = 'ec', names = ['localhost'], ca } = setup;
  const pems = await generate([{ name: 'commonName', value: names[0] ?? 'nobody' }], {
    ...(keyType === 'ec' ? { keyType, curve: 'P-256' } : { keyType, keySize: 2048 }),
    algorithm: 'sha256',
    notBeforeDate: new Date(setup.notBefore ?? Date.now() - day),
    notAfterDate: new Date(setup.notAfter ?? Date.now() + 90 * day),
    ...(ca === undefined ? {} : { ca }),
    extensions: [
      { name: 'basicConstraints', cA: ca === undefined, critical: true },
      { name: 'subjectAltName', altNames: names.map((value) => ({ type: 2, value })) },
    ],
  });
  return { cert: pems.cert, key: pems.private };
}
