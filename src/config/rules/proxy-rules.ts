import { type IpRange, parseIpRange } from '../../policy/ip-ranges.js';
import type { RuleProblem } from '../config-error.js';

/**
 * Returns the problems of a list of trusted proxies: invalid addresses and ranges that are too wide. A range wider than
 * the largest private networks would also contain clients, which could then spoof their address. The shortest allowed
 * prefix is /8 for IPv4, /7 for unique local addresses (fc00::/7), and /16 for other IPv6.
 * @param path the option with the list
 */
export function proxyProblems(path: string, proxies: readonly string[]): RuleProblem[] {
  return proxies.flatMap((entry, index) => {
    const range = parseIpRange(entry);
    const message = range === null ? 'expected an IP address or CIDR, such as 10.0.0.0/8' : tooWide(entry, range);
    return message === null ? [] : [{ path: `${path}[${index}]`, message }];
  });
}

function tooWide(entry: string, range: IpRange): string | null {
  if (range.prefix >= shortestPrefix(range)) return null;
  const isIpv4Mapped = range.family === 4 && entry.includes(':');
  const shortest = shortestPrefix(range) + (isIpv4Mapped ? 96 : 0);
  return `is so wide that it includes clients, which could then spoof their address; expected a prefix of /${shortest} or longer`;
}

function shortestPrefix({ family, first }: IpRange): number {
  if (family === 4) return 8;
  const isUniqueLocal = first >> 121n === 0b1111110n;
  return isUniqueLocal ? 7 : 16;
}
