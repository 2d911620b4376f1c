import { createHash } from 'node:crypto';
import { crc32 } from 'node:zlib';

/** Prefix of every administrator's token. Secret scanners and people recognise a token by this prefix. */
export const tokenPrefix = 'mga_';
const secretBytes = 32;
const checksumCharacters = 8;
const tokenForm = /^mga_[A-Za-z0-9_-]{43}[0-9a-f]{8}$/;

/** Creates a token: the prefix, 256 random bits and a CRC-32, which detects a token that was copied incompletely. */
export function newToken(random: (size: number) => Buffer): string {
  const text = `${tokenPrefix}${random(secretBytes).toString('base64url')}`;
  return text + checksumOf(text);
}

/** Whether a text has the form and checksum of a token. Does not check whether the token exists. */
export function isTokenText(text: string): boolean {
  return tokenForm.test(text) && checksumOf(text.slice(0, -checksumCharacters)) === text.slice(-checksumCharacters);
}

/**
 * Returns the SHA-256 of a token in hex. The database stores this hash instead of the token. A slow hash is not needed,
 * because 256 random bits cannot be guessed.
 */
export function digestOf(token: string): string {
  return createHash('sha256').update(token).digest('hex');
}

function checksumOf(text: string): string {
  return crc32(text).toString(16).padStart(checksumCharacters, '0');
}
