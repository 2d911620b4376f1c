import type { Whereabouts } from '../../gateway/ports.js';
import { eventOf, placeOf, timeText } from '../access-log.js';

/** How many of the requests in a line ended with a code. */
interface CodeCount {
  readonly status: number;
  count: number;
}

/** Requests that share a line. */
export interface SharedRequests {
  /** Whose they are: an address, or the /64 of an IPv6 one; null: of several. */
  readonly source: string | null;
  /** Of the first of them; null where it is not known, or they are of several sources. */
  readonly clientIp: string | null;
  readonly sourceIp: string | null;
  readonly whereabouts: Whereabouts | null;
  /** When the first and the last of them came, in milliseconds since 1970. */
  first: number;
  last: number;
  count: number;
  readonly codes: Map<string, CodeCount>;
}

/**
 * The access log's line of requests that have none of their own, as `accessLine` makes those: its code is the most frequent one, and
 * `gateway.aggregate` says how many requests it stands for, by code.
 * @param reason why they share it, in words for operators
 */
export function sharedLine(requests: SharedRequests, environment: string, reason: string): string {
  const { source, clientIp, sourceIp, whereabouts, first, last, count, codes } = requests;
  const byCount = [...codes].toSorted(([, one], [, other]) => other.count - one.count);
  const [code = '', { status } = { status: 0 }] = byCount[0] ?? [];
  const counts = byCount.map(([name, of]) => `"${name}":${of.count}`).join(',');
  return (
    `{"@timestamp":"${timeText(first)}","http":{"request":{},"response":{"status_code":${status}}}` +
    `,"client":{${clientIp === null ? '' : `"ip":"${clientIp}"`}${placeOf(whereabouts)}}` +
    `,"source":{${sourceIp === null ? '' : `"ip":"${sourceIp}"`}}` +
    `,"gateway":{"environment":"${environment}","aggregate":{"count":${count},"codes":{${counts}}` +
    `${source === null ? '' : `,"source":"${source}"`}}}` +
    `,"event":{${eventOf(code)},"reason":"${reason}","start":"${timeText(first)}","end":"${timeText(last)}"}}`
  );
}
