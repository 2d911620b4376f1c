import { createPrivateKey, createPublicKey } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { calculateJwkThumbprint, exportJWK } from 'jose';
import type { JSONWebKeySet, JWK } from 'jose';
import { OperatorError } from '../../config/operator-error.js';
import { privateKeys, readOperatorFile } from '../../config/operator-file.js';

/** The signature algorithms that upstreams must know (RFC 8037, RFC 7518). */
type SigningAlgorithm = 'EdDSA' | 'ES256';

/** The key that signs, and the id under which upstreams find its public key. */
export interface SigningKey {
  readonly privateKey: KeyObject;
  readonly algorithm: SigningAlgorithm;
  /** RFC 7638 thumbprint of the public key: the same on every replica, without a configured name. */
  readonly keyId: string;
}

/** The files with the keys of the signed identity. */
export interface SigningKeyFiles {
  /** PEM private key, Ed25519 or P-256. */
  readonly signingKeyFile: string;
  /** PEM keys, private or public, that are published in addition, so that old and new keys overlap in a rotation. */
  readonly publishedKeyFiles: readonly string[];
}

const maxPemBytes = 64 * 1024;

/**
 * Reads the signing key.
 * @throws OperatorError with one sentence when it is unreadable, or not an Ed25519 or P-256 private key
 */
export async function readSigningKey(file: string): Promise<SigningKey> {
  const what = 'The signing key';
  const privateKey = keyIn(await readOperatorFile(file, what, maxPemBytes, privateKeys), createPrivateKey);
  if (privateKey === null) throw new OperatorError(`${what} ${file} is not a PEM private key without a passphrase.`);
  const { algorithm, keyId } = await publicHalf(createPublicKey(privateKey), what, file);
  return { privateKey, algorithm, keyId };
}

/**
 * The public keys of all files as a JWK set, which upstreams fetch (RFC 7517). It contains nothing private.
 * @throws OperatorError with one sentence for a file without a usable key
 */
export async function readPublicKeys({ signingKeyFile, publishedKeyFiles }: SigningKeyFiles): Promise<JSONWebKeySet> {
  const keys = new Map<string, JWK>();
  for (const file of [signingKeyFile, ...publishedKeyFiles]) {
    const what = 'The identity key';
    // For a private key this derives the public key.
    const publicKey = keyIn(await readOperatorFile(file, what, maxPemBytes, privateKeys), createPublicKey);
    if (publicKey === null) throw new OperatorError(`${what} ${file} is not a PEM key without a passphrase.`);
    const { algorithm, keyId, jwk } = await publicHalf(publicKey, what, file);
    keys.set(keyId, { ...jwk, kid: keyId, alg: algorithm, use: 'sig' });
  }
  return { keys: [...keys.values()] };
}

async function publicHalf(publicKey: KeyObject, what: string, file: string) {
  const algorithm = algorithmOf(publicKey);
  if (algorithm === null) throw new OperatorError(`${what} ${file} must be an Ed25519 or a P-256 key.`);
  const jwk = await exportJWK(publicKey);
  return { algorithm, jwk, keyId: await calculateJwkThumbprint(jwk) };
}

function algorithmOf({ asymmetricKeyType, asymmetricKeyDetails }: KeyObject): SigningAlgorithm | null {
  if (asymmetricKeyType === 'ed25519') return 'EdDSA';
  return asymmetricKeyType === 'ec' && asymmetricKeyDetails?.namedCurve === 'prime256v1' ? 'ES256' : null;
}

function keyIn(pem: Buffer, read: (pem: Buffer) => KeyObject): KeyObject | null {
  try {
    return read(pem);
  } catch {
    return null; // the reason would quote the file's contents
  }
}
