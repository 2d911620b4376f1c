import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createSelfSigned } from '../../../src/cli/dev/self-signed.js';
import { lookupIdOf } from '../../../src/gateway/api-key.js';
import type { Teardowns } from '../../deployment/teardowns.js';
import { startProgram } from './processes.js';

/** The environment of the subjects: an upstream, a certificate, known keys, and a directory for each subject. */
export interface Place {
  readonly t: Teardowns;
  readonly upstreamPort: number;
  readonly certFile: string;
  readonly keyFile: string;
  /** The certificate that clients of the subjects trust. */
  readonly ca: string;
  readonly privateKey: string;
  /** Number of known keys: `benchKey(0)` and following. */
  readonly keys: number;
  /** Creates the directory for a subject's files. */
  directory(name: string): Promise<string>;
}

/** Keys per merchant. */
const keysOfMerchant = 10;

/** The API key of this number. It has the length of a generated key. */
export function benchKey(number: number): string {
  return `svc_live_${number.toString(36).padStart(49, 'k')}`;
}

/** The merchant of the key of this number. */
export function merchantOf(number: number): string {
  return `m_${Math.floor(number / keysOfMerchant)}`;
}

/** The look-up ids of all known keys, each with its merchant. */
export function* merchantsByLookupId({ keys }: Pick<Place, 'keys'>): Generator<[lookupId: string, merchantId: string]> {
  for (let number = 0; number < keys; number += 1) {
    yield [lookupIdOf(benchKey(number), null), merchantOf(number)];
  }
}

/** Starts the upstream and creates the certificate. Returns an environment for subjects that know `keys` keys. */
export async function openPlace(t: Teardowns, keys: number): Promise<Place> {
  const root = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-bench-'));
  t.teardown(() => rm(root, { recursive: true, force: true }));
  const { cert, key } = await createSelfSigned(new Date());
  const [certFile, keyFile] = [path.join(root, 'cert.pem'), path.join(root, 'key.pem')];
  await writeFile(certFile, cert);
  await writeFile(keyFile, key, { mode: 0o600 });
  const upstream = await startProgram(t, {
    command: process.execPath,
    args: ['test/bench/subjects/upstream.mjs'],
    isSubject: false,
    started: /"upstream":(\d+)/,
  });
  return {
    ...{ t, certFile, keyFile, ca: cert, privateKey: key, keys },
    upstreamPort: Number(upstream.found),
    async directory(name) {
      const directory = path.join(root, name);
      await mkdir(directory, { recursive: true });
      return directory;
    },
  };
}
