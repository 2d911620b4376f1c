import { generate } from 'selfsigned';
import type { SelfSigned } from '../../src/cli/dev/self-signed.js';

const day = 86_400_000;

/** The fields of a certificate. By default, the certificate is valid now, for a server named `localhost`. */
export interface CertificateSetup {
  readonly keyType?: 'ec' | 'rsa';
  readonly names?: readonly string[];
  /** The first of `names`, unless given. */
  readonly commonName?: string;
  readonly notBefore?: number;
  readonly notAfter?: number;
  readonly ca?: SelfSigned;
}

/** Creates a certificate for a test, self-signed or signed by `ca`. */
export async function makeCertificate(setup: CertificateSetup = {}): Promise<SelfSigned> {
  const { keyType = 'ec', names = ['localhost'], ca } = setup;
  const commonName = setup.commonName ?? names[0] ?? 'nobody';
  const pems = await generate(
    [{ name: 'commonName', value: commonName.replaceAll(/[\\,+"<>;#=]/g, String.raw`\$&`) }],
    {
      ...(keyType === 'ec' ? { keyType, curve: 'P-256' } : { keyType, keySize: 2048 }),
      algorithm: 'sha256',
      notBeforeDate: new Date(setup.notBefore ?? Date.now() - day),
      notAfterDate: new Date(setup.notAfter ?? Date.now() + 90 * day),
      ...(ca === undefined ? {} : { ca }),
      extensions: [
        { name: 'basicConstraints', cA: ca === undefined, critical: true },
        { name: 'subjectAltName', altNames: names.map((value) => ({ type: 2, value })) },
      ],
    },
  );
  return { cert: pems.cert, key: pems.private };
}
