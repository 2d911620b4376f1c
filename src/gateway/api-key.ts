import { createHmac, createSecretKey, hash, randomBytes } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { keyPrefixes } from '../policy/key-format.js';
import type { Environment } from '../policy/key-format.js';

const base62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const secretBytes = 32;
const secretLength = 43; // 62^43 is the first power of 62 above 2^256
const checksumLength = 6; // 62^6 is the first power of 62 above 2^32
const beyondAscii = /[\x80-\xff]/;

/** HMAC key of look-up ids: who steals the store alone cannot tell whether a key is in it. */
export type Pepper = KeyObject;

/** Makes a pepper's bytes into what hashes take; given the bytes, Node 24 takes ten µs more for each hash. */
export function pepperOf(bytes: Buffer): Pepper {
  return createSecretKey(bytes);
}

/**
 * The name under which a key store holds a key: hex SHA-256 of the whole key, or HMAC-SHA-256 where there is a pepper.
 * A key has 256 random bits, so a slow password hash would add cost for us and none for whoever steals the store.
 * @param key a character for each of its bytes, as Node reads headers; one from elsewhere may have others than ASCII
 */
export function lookupIdOf(key: string, pepper: Pepper | null): string {
  if (pepper !== null) return createHmac('sha256', pepper).update(key, 'latin1').digest('hex');
  return hash('sha256', beyondAscii.test(key) ? Buffer.from(key, 'latin1') : key);
}

/** Makes a key: prefix, 32 random bytes in base62, and a checksum by which a secret scanner recognises it. */
export function generateApiKey(environment: Environment, random: (size: number) => Buffer = randomBytes): string {
  const secret = toBase62(BigInt(`0x${random(secretBytes).toString('hex')}`), secretLength);
  return keyPrefixes[environment] + secret + checksumOf(keyPrefixes[environment] + secret);
}

const generatedForm = new RegExp(
  `^(?:${Object.values(keyPrefixes).join('|')})[0-9A-Za-z]{${secretLength + checksumLength}}$`,
);

/** Says whether a text is a key as `generateApiKey` makes them. */
export function isGeneratedApiKey(text: string): boolean {
  return checksumIn(text) === 'right';
}

/** The checksum of a key as `generateApiKey` makes them; none: it is of another form, as imported keys may be. */
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
