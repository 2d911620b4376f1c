import { createHash, timingSafeEqual } from 'node:crypto';
import { OperatorError } from '../config/operator-error.js';
import { readOperatorFile, alwaysSecret } from '../config/operator-file.js';
import { parseIpAddress } from '../policy/ip-address.js';
import { compileIpRanges, parseIpRange } from '../policy/ip-ranges.js';

const shortestToken = 32;
const mostTokenBytes = 4096;
const tokenForm = /^[A-Za-z0-9._~+/=-]+$/;
const headerForm = /^Bearer +(?<token>[A-Za-z0-9._~+/=-]+)$/i;

/**
 * Reads a bearer token from a file, without surrounding white space.
 * @param option the configuration option that names the file
 * @param file null if the option is not set
 * @throws OperatorError if the option is not set, or if the file cannot be read or has no valid token
 */
export async function readToken(
  file: string | null,
  option: 'registry.tokenFile' | 'services.operators.tokenFile' | 'services.operators.trail.tokenFile',
): Promise<string> {
  if (file === null) {
    throw new OperatorError(
      `${option} must name a file with a token of at least ${shortestToken} characters. Create a token with "openssl rand -hex 32".`,
    );
  }
  const token = (await readOperatorFile(file, 'The token file', mostTokenBytes, alwaysSecret)).toString('utf8').trim();
  if (token.length < shortestToken || !tokenForm.test(token)) {
    throw new OperatorError(
      `The token file ${file} must contain one token of at least ${shortestToken} letters, digits and . _ ~ + / = -.`,
    );
  }
  return token;
}

/** Returns the bearer token in an authorization header; null if the header is missing or has no bearer token. */
export function bearerTokenIn(header: string | undefined): string | null {
  return headerForm.exec(header ?? '')?.groups?.token ?? null;
}

/** Returns a function that compares a given token with the expected token in constant time. */
export function tokenCheck(token: string): (given: string) => boolean {
  const expected = digestOf(token);
  // Digests have equal lengths, so the time of the comparison reveals neither the content nor the length of the token.
  return (given) => timingSafeEqual(digestOf(given), expected);
}

/** Returns true if a text is an IP address. */
export function isIpAddress(text: string): boolean {
  return parseIpAddress(text) !== null;
}

/** Returns true if a text is an IP address or a CIDR. */
export function isIpRange(text: string): boolean {
  return parseIpRange(text) !== null;
}

/**
 * Returns true if a token is valid from this client address.
 * @param sources addresses and CIDRs from which the token is valid; null for all
 * @param address null if unknown; a token from an unknown address is valid only if `sources` is null
 */
export function isFrom(sources: readonly string[] | null, address: string | null): boolean {
  if (sources === null) return true;
  const parsed = parseIpAddress(address ?? '');
  return parsed !== null && compileIpRanges(sources).admits(parsed);
}

function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
