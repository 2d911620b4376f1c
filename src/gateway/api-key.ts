import { createHmac, createSecretKey, hash, randomBytes } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { keyPrefixes } from '../policy/key-format.js';
import type { Environment } from '../policy/key-format.js';

const base62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const secretBytes = 32;
const secretLength = 43; // 62^43 is the first power of 62 above 2^256, so 43 digits hold 32 bytes
const checksumLength = 6; // 62^6 is the first power of 62 above 2^32, so 6 digits hold a CRC-32
const beyondAscii = /[\x80-\xff]/;

/** HMAC key for look-up ids: without the pepper, a stolen store does not reveal whether it contains a given key. */
export type Pepper = KeyObject;

/** Wraps the bytes of a pepper in a KeyObject; with plain bytes, Node 24 takes 10 µs more per hash. */
export function pepperOf(bytes: Buffer): Pepper {
  return createSecretKey(bytes);
}

/**
 * The name under which a key store holds a key: hex SHA-256 of the whole key, or HMAC-SHA-256 with a pepper. A key has
 * 256 random bits, so a slow password hash would only add cost for the gateway and none for an attacker.
 * @param key one character per byte (latin1), as Node reads headers; keys from other sources may contain non-ASCII
 *   characters
 */
export function lookupIdOf(key: string, pepper: Pepper | null): string {
  if (pepper !== null) return createHmac('sha256', pepper).update(key, 'latin1').digest('hex');
  return hash('sha256', beyondAscii.test(key) ? Buffer.from(key, 'latin1') : key);
}

/** Generates a key: prefix, 32 random bytes in base62, and a checksum that secret scanners can verify. */
export function generateApiKey(environment: Environment, random: (size: number) => Buffer = randomBytes): string {
  const secret = toBase62(BigInt(`0x${random(secretBytes).toString('hex')}`), secretLength);
  return keyPrefixes[environment] + secret + checksumOf(keyPrefixes[environment] + secret);
}

const generatedForm = new RegExp(
  `^(?:${Object.values(keyPrefixes).join('|')})[0-9A-Za-z]{${secretLength + checksumLength}}$`,
);

/** Whether a text has the form and checksum of a key from `generateApiKey`. */
export function isGeneratedApiKey(text: string): boolean {
  return checksumIn(text) === 'right';
}

/**
 * Verifies the checksum of a key; `none` for keys of another form than `generateApiKey` creates, such as imported keys.
 */
export function checksumIn(key: string): 'right' | 'wrong' | 'none' {
  if (!generatedForm.test(key)) return 'none';
  return checksumOf(key.slice(0, -checksumLength)) === key.slice(-checksumLength) ? 'right' : 'wrong';
}

function checksumOf(text: string): string {
  return toBase62(BigInt(crc32(text)), checksumLength);
}

function toBase62(value: bigint, length: number): string {
  let text = '';
  for (let rest = value; text.length < length; rest /= 62n) text = base62.charAt(Number(rest % 62n)) + text;
  return text;
}
