import { generate } from 'selfsigned';

/** A certificate and its private key, in PEM. */
export interface SelfSigned {
  readonly cert: string;
  readonly key: string;
}

const validDays = 30;

/** Creates a self-signed ECDSA P-256 certificate for localhost, 127.0.0.1 and ::1, valid for 30 days. */
export async function createSelfSigned(now: Date): Promise<SelfSigned> {
  const pems = await generate([{ name: 'commonName', value: 'localhost' }], {
    keyType: 'ec',
    curve: 'P-256',
    algorithm: 'sha256',
    notBeforeDate: new Date(now.getTime() - 60_000),
    notAfterDate: new Date(now.getTime() + validDays * 86_400_000),
    extensions: [
      { name: 'basicConstraints', cA: false, critical: true },
      { name: 'keyUsage', digitalSignature: true, critical: true },
      { name: 'extKeyUsage', serverAuth: true },
      {
        name: 'subjectAltName',
        altNames: [
          { type: 2, value: 'localhost' },
          { type: 7, ip: '127.0.0.1' },
          { type: 7, ip: '::1' },
        ],
      },
    ],
  });
  return { cert: pems.cert, key: pems.private };
}
