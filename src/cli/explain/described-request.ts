import type { AccessEntry } from '../../audit/access-entry.js';
import type { DescribedRequest } from '../../edge/explain-request.js';
import { type IpAddress, parseIpAddress } from '../../policy/ip-address.js';
import { WrongUsage } from '../admin/peer.js';
import type { KeySought } from './stored-record.js';

/** The request described on the command line. Its missing parts come from a log line or are defaults. */
export interface Description {
  readonly method: string | undefined;
  readonly path: string | undefined;
  readonly header: readonly (readonly [name: string, value: string])[];
  readonly address: IpAddress | undefined;
  readonly plain: true | undefined;
  readonly at: number | undefined;
}

/** Host header of a request if the user gives none. RFC 6761 reserves `.invalid`, so no allowlist contains it. */
const unnamedHost = 'unnamed.invalid';

/**
 * Builds the described request without its API key. Takes missing values from the log line, and adds X-Forwarded-For
 * and X-Forwarded-Proto if the line shows that a proxy sent them.
 * @throws WrongUsage if the path or the address is missing
 */
export function describedRequest(description: Description, entry: AccessEntry | null): DescribedRequest {
  const { method = entry?.http.request.method ?? 'GET', plain, at } = description;
  // Log lines of requests that the HTTP parser rejected contain no path.
  const path = description.path ?? entry?.url?.path ?? (entry === null ? undefined : '/');
  if (path === undefined) throw new WrongUsage('give the path with --path');
  const remote = description.address ?? addressIn(entry);
  const headers = [...description.header];
  const has = (name: string): boolean => headers.some(([given]) => given.toLowerCase() === name);
  const tls = plain === undefined && (entry === null || entry.tls !== undefined);
  if (entry !== null && description.address === undefined) {
    const { client } = entry;
    if (!has('x-forwarded-for') && client?.ip !== undefined && client.ip !== entry.source?.ip) {
      headers.push(['X-Forwarded-For', client.ip]);
    }
    const secure = entry.event.code !== 'https_required';
    if (!has('x-forwarded-proto') && plain === undefined && tls !== secure) {
      headers.push(['X-Forwarded-Proto', secure ? 'https' : 'http']);
    }
  }
  if (!has('host')) headers.push(['Host', unnamedHost]);
  return { method, target: path, headers, remote, tls, at: at ?? timeOf(entry) };
}

/** Returns the key or merchant that a log line names; null if the line names no key and no merchant. */
export function keyOf({ gateway, organization }: AccessEntry): KeySought | null {
  if (gateway.key?.id !== undefined) return { keyId: gateway.key.id };
  return organization?.id === undefined ? null : { merchantId: organization.id };
}

function addressIn(entry: AccessEntry | null): IpAddress {
  const address = parseIpAddress(entry?.source?.ip ?? '');
  if (address === null) throw new WrongUsage('give the source address of the request with --address');
  return address;
}

function timeOf(entry: AccessEntry | null): number {
  const time = entry === null ? NaN : Date.parse(entry['@timestamp']);
  return Number.isNaN(time) ? Date.now() : time;
}
