import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createSelfSigned } from '../../../src/cli/dev/self-signed.js';
import { lookupIdOf } from '../../../src/gateway/api-key.js';
import type { Teardowns } from '../deployment.js';
import { startProgram } from './processes.js';

/** Where subjects run: an upstream, a certificate, keys that they shall know, and a directory for each. */
export interface Place {
  readonly t: Teardowns;
  readonly upstreamPort: number;
  readonly certFile: string;
  readonly keyFile: string;
  /** The certificate, for who speaks to them. */
  readonly ca: string;
  readonly privateKey: string;
  /** How many keys there are: those of `benchKey` from 0. */
  readonly keys: number;
  /** A new directory for the files of a subject. */
  directory(name: string): Promise<string>;
}

/** Keys of each merchant. */
const keysOfMerchant = 10;

/** The key of this number, as long as a generated one. */
export function benchKey(number: number): string {
  return `svc_live_${number.toString(36).padStart(49, 'k')}`;
}

/** Whose the key of this number is. */
export function merchantOf(number: number): string {
  return `m_${Math.floor(number / keysOfMerchant)}`;
}

/** The look-up ids of the keys, each with its merchant. */
export function* merchantsByLookupId({ keys }: Pick<Place, 'keys'>): Generator<[lookupId: string, merchantId: string]> {
  for (let number = 0; number < keys; number += 1) {
    yield [lookupIdOf(benchKey(number), null), merchantOf(number)];
  }
}

/** Starts the upstream, and makes the certificate. */
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
