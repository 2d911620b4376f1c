import { isReservedAddress, parseIpAddress } from '../../policy/ip-address.js';
import { compileOriginPatterns, InvalidOriginPattern } from '../../policy/origin-patterns.js';
import { holdsApiKey } from '../fields.js';
import type { CheckedAllowlist, Concern } from './ip-allowlist.js';

const entryForm = /^(?<scheme>https?:\/\/)?(?<wildcard>\*\.)?(?<host>\[[^\]]*\]|[^:]*)(?::(?<port>\d+))?$/i;
/**
 * Maximum length of a host in DNS, without the trailing dot. The registry has to check this maximum, because gateways
 * accept entries of up to 512 characters.
 */
const longestHost = 253;
const defaultPorts: Readonly<Record<string, number>> = { 'http://': 80, 'https://': 443 };

/** Checks an origin allowlist. The compiler that the gateway uses decides which entries are valid. */
export function checkOriginAllowlist(given: readonly string[]): CheckedAllowlist {
  const entries = new Set<string>();
  const problems = [];
  const concerns: Concern[] = [];
  for (const [index, entry] of given.entries()) {
    const path = `originAllowlist[${index}]`;
    if (!isOriginPattern(entry)) {
      const form =
        'a host such as shop.example or *.shop.example, optionally with http:// or https:// before it and a port after it';
      problems.push({ path, message: `${path} must be ${form}` });
      continue;
    }
    const { text, host, wildcard } = canonical(entry);
    // Checks the canonical form, because it is stored. An API key in full-width letters looks harmless in the entry,
    // but the canonical form contains it in ASCII letters.
    if (holdsApiKey(text)) {
      problems.push({ path, message: `${path} must not contain anything that looks like an API key` });
      continue;
    }
    // Checks the length after the conversion to Punycode, which can make a host several times as long.
    if (host.length > longestHost) {
      const message = `${path} must name a host of at most ${longestHost} characters in its DNS form (xn--…), but this host has ${host.length}`;
      problems.push({ path, message });
      continue;
    }
    entries.add(text);
    if (isPrivate(host)) {
      concerns.push({ path, flag: 'private_range', what: `${text} is not on the public internet` });
    } else if (wildcard && !host.includes('.')) {
      concerns.push({ path, flag: 'open_range', what: `${text} admits every host below a top-level domain` });
    }
  }
  return { entries: [...entries], problems, concerns };
}

function isOriginPattern(entry: string): boolean {
  try {
    compileOriginPatterns([entry]);
    return true;
  } catch (error) {
    if (error instanceof InvalidOriginPattern) return false;
    throw error;
  }
}

/** Converts a valid entry to its canonical form: lower case, Punycode, no trailing dot, no default port. */
function canonical(entry: string): { text: string; host: string; wildcard: boolean } {
  const { scheme = '', wildcard = '', host: given = '', port } = entryForm.exec(entry)?.groups ?? {};
  const host = new URL(`https://${given}`).hostname.replace(/\.$/, '');
  const protocol = scheme.toLowerCase();
  const number = port === undefined ? undefined : Number(port);
  const suffix = number === undefined || number === defaultPorts[protocol] ? '' : `:${number}`;
  return { text: protocol + wildcard + host + suffix, host, wildcard: wildcard !== '' };
}

function isPrivate(host: string): boolean {
  if (/(?:^|\.)localhost$/.test(host)) return true;
  const address = parseIpAddress(host.replace(/^\[|\]$/g, ''));
  return address !== null && isReservedAddress(address);
}
