import { createPrivateKey, createPublicKey } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { calculateJwkThumbprint, exportJWK } from 'jose';
import type { JSONWebKeySet, JWK } from 'jose';
import { OperatorError } from '../../config/operator-error.js';
import { privateKeys, readOperatorFile } from '../../config/operator-file.js';

/** The signature algorithms that upstreams must support (RFC 8037, RFC 7518). */
type SigningAlgorithm = 'EdDSA' | 'ES256';

/** A private key that signs JWTs, and the id of its public key in the published JWK set. */
export interface SigningKey {
  readonly privateKey: KeyObject;
  readonly algorithm: SigningAlgorithm;
  /** RFC 7638 thumbprint of the public key. Every replica computes the same id, so the id needs no configuration. */
  readonly keyId: string;
}

const maxPemBytes = 64 * 1024;

/**
 * Reads the signing key of the caller identity.
 * @throws OperatorError if the file is unreadable, or not an Ed25519 or P-256 private key; the message is one sentence
 */
export function readSigningKey(file: string): Promise<SigningKey> {
  return readPrivateKey(file, 'The signing key');
}

/**
 * Reads the key with which the registry signs services tokens. A services token is a JWT that authenticates an
 * administrator of the registry to the services.
 * @throws OperatorError if the file is unreadable, or not an Ed25519 private key; the message is one sentence
 */
export async function readServicesTokenKey(file: string): Promise<SigningKey> {
  const what = 'The signing key of registry.servicesToken';
  const key = await readPrivateKey(file, what);
  if (key.algorithm === 'EdDSA') return key;
  throw new OperatorError(
    `${what} ${file} must be an Ed25519 key. Create one: openssl genpkey -algorithm ed25519 -out ${file}`,
  );
}

async function readPrivateKey(file: string, what: string): Promise<SigningKey> {
  const privateKey = keyIn(await readOperatorFile(file, what, maxPemBytes, privateKeys), createPrivateKey);
  if (privateKey === null) throw new OperatorError(`${what} ${file} must be an unencrypted private key in PEM format.`);
  const { algorithm, keyId } = await publicHalf(createPublicKey(privateKey), what, file);
  return { privateKey, algorithm, keyId };
}

/**
 * Reads the public keys of the registry as a JWK set. A private key is rejected: with it, the services could sign tokens
 * for themselves.
 * @throws OperatorError for a file without an Ed25519 public key; the message is one sentence
 */
export async function readRegistryKeys(files: readonly string[]): Promise<JSONWebKeySet> {
  const keys: JWK[] = [];
  for (const file of files) {
    const what = 'The public key of services.operators.registryKeys';
    const pem = await readOperatorFile(file, what, maxPemBytes, privateKeys);
    const publicKey = privateKeys(pem) ? null : keyIn(pem, createPublicKey);
    if (publicKey?.asymmetricKeyType !== 'ed25519') {
      throw new OperatorError(
        `${what} ${file} must be an Ed25519 public key. Derive it from the private key in registry.servicesToken.keyFile: openssl pkey -in PRIVATE_KEY -pubout`,
      );
    }
    const { algorithm, keyId, jwk } = await publicHalf(publicKey, what, file);
    keys.push({ ...jwk, kid: keyId, alg: algorithm, use: 'sig' });
  }
  return { keys };
}

/**
 * Reads the public keys of all files as a JWK set (RFC 7517), which upstreams fetch. The set contains no private key.
 * It can have several keys, so that upstreams accept the old and the new key during a rotation.
 * @param files paths of PEM keys, private or public, Ed25519 or P-256
 * @throws OperatorError for a file without a usable key; the message is one sentence
 */
export async function readPublicKeys(files: readonly string[]): Promise<JSONWebKeySet> {
  const keys = new Map<string, JWK>();
  for (const file of files) {
    const what = 'The identity key';
    // `createPublicKey` derives the public key if the file contains a private key.
    const publicKey = keyIn(await readOperatorFile(file, what, maxPemBytes, privateKeys), createPublicKey);
    if (publicKey === null) throw new OperatorError(`${what} ${file} must be an unencrypted key in PEM format.`);
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
    return null; // the error is discarded, because its message could quote the key
  }
}
