import type { GeoLocation } from '../../gateway/ports.js';
import { cutAtKey } from '../../telemetry/mask-keys.js';
import { cut, decimal, quote, timeText } from '../../telemetry/serialise.js';
import { uniqueId } from '../../telemetry/unique-id.js';
import type { Credential } from '../../policy/facts.js';
import type { ConnectionFacts } from '../request/connection-facts.js';
import type { Exchange } from '../request/exchange.js';
import type { Findings } from '../request/findings.js';
import type { RequestTarget } from '../request/request-data.js';
import type { RefusedRequest } from '../server/protocol-errors.js';

/**
 * What the gateway found out about the API key of a request: the record of the key (`credential`) and the result of the
 * key look-up. Each is null if unknown.
 */
export type KeyOwner = Pick<Findings, 'credential' | 'keyLookup'>;

/**
 * Returns the access log line of a finished request: the text of a JSON object with ECS field names. The line never
 * contains a body, a query string or an API key. `event` is the last member, because the log's hash chain appends a
 * sequence number and a hash to `event`. The text is concatenated, because JSON.stringify of an object per request
 * costs three times as much.
 */
export function accessLine(exchange: Exchange, owner: KeyOwner, environment: string): string {
  const { data, found, outcome, forwarded, detail } = exchange;
  const { clientAddress, match, trace } = found;
  const { credential, keyLookup } = owner;
  const sent = forwarded ? `,"body":{"bytes":${exchange.requestBodyBytes}}` : '';
  const tor = outcome === 'tor_blocked' ? found.torListDigest : null;
  const revision = credential === null ? '' : `,"revision":${credential.keyRevision}`;
  const record =
    keyLookup && `,"record":{"source":"${keyLookup.source}","age":${decimal(keyLookup.ageMilliseconds, 3)}${revision}}`;
  return (
    `{"@timestamp":"${timeText(data.receivedAt)}"` +
    (trace === null ? '' : `,"trace":{"id":"${trace.traceId}"}`) +
    `,"http":{"request":{"id":"${found.id}","method":${quote(data.method)}${sent}}` +
    `,"response":{"status_code":${exchange.status},"body":{"bytes":${exchange.responseBodyBytes}}}}` +
    `,"url":{"path":${quote(loggedPath(data.target))}}` +
    `,"client":{${clientAddress === null ? '' : `"ip":"${clientAddress.text}"`}${locationMembers(found.location)}}` +
    connectionMembers(data.connection) +
    (credential === null ? '' : `,"organization":{"id":${quote(credential.merchantId)}}`) +
    `,"gateway":{${keyOf(credential, found.keyFingerprint)}"environment":"${environment}"` +
    (tor === null ? '' : `,"tor_list":{"digest":"${tor}"}`) +
    (record ?? '') +
    (match === null ? '' : `,"route":${quote(match.route.path)}`) +
    `${forwarded ? upstreamOf(exchange) : ''}}` +
    `,"user_agent":{"original":${quote(sanitized(data.headers.userAgent[0] ?? ''))}}` +
    `,"event":{${eventOf(outcome, forwarded)}` +
    (detail === null ? '' : `,"reason":${quote(sanitized(detail))}`) +
    `,"duration":${decimal(exchange.duration * 1_000_000, 0)}}}`
  );
}

/** Returns the `source` and `tls` members of a connection, with leading commas. Without TLS, `tls` is missing. */
function connectionMembers({ remote, port, tls }: Pick<ConnectionFacts, 'remote' | 'port' | 'tls'>): string {
  const source = remote === null ? '' : `"ip":"${remote.text}"${port === null ? '' : `,"port":${port}`}`;
  return `,"source":{${source}}${tls === null ? '' : `,"tls":${tls}`}`;
}

function upstreamOf({ found: { match }, upstreamDuration }: Exchange): string {
  const duration = upstreamDuration === null ? 'null' : decimal(upstreamDuration, 3);
  return `,"upstream":{"name":${quote(match?.route.upstream ?? '')},"duration":${duration}}`;
}

/** Returns the `geo` and `as` members for a client address, with leading commas. Omits a member that is unknown. */
export function locationMembers(location: GeoLocation | null): string {
  if (location === null) return '';
  const { countryIsoCode, asNumber } = location;
  const country = countryIsoCode === null ? '' : `,"geo":{"country_iso_code":${quote(countryIsoCode)}}`;
  return country + (asNumber === null ? '' : `,"as":{"number":${asNumber}}`);
}

/** Returns the access log line of a request that the HTTP parser rejected. */
export function refusedLine(refused: RefusedRequest, environment: string, at: number): string {
  const { id, status, code, detail } = refused;
  return (
    `{"@timestamp":"${timeText(at)}","http":{"request":{"id":"${id}"},"response":{"status_code":${status}}}` +
    connectionMembers(refused) +
    `,"gateway":{"environment":"${environment}"}` +
    `,"event":{${eventOf(code)},"reason":${quote(sanitized(detail))},"duration":0}}`
  );
}

function keyOf(credential: Credential | null, keyFingerprint: string | null): string {
  const id = credential === null ? '' : `"id":${quote(credential.keyId)}`;
  const fingerprint = keyFingerprint === null ? '' : `"fingerprint":"${keyFingerprint}"`;
  if (id === '' && fingerprint === '') return '';
  return `"key":{${id}${id === '' || fingerprint === '' ? '' : ','}${fingerprint}},`;
}

/**
 * Returns the members of `event` that all access log lines about requests have, without the braces.
 * @param isAllowed whether the request was forwarded to its service, even if it failed afterwards
 */
export function eventOf(code: string, isAllowed = false): string {
  const accepted = code === 'accepted';
  return (
    `"id":"${uniqueId()}","dataset":"gateway.access","kind":"event","category":["api"]` +
    `,"type":["access","${accepted || isAllowed ? 'allowed' : 'denied'}"],"action":"api-request"` +
    `,"outcome":"${accepted ? 'success' : 'failure'}","code":"${code}"`
  );
}

const mostBeforePath = 256;

/**
 * Returns the path of a target for a log or a trace, cut off where an API key begins. In a target in absolute form, a
 * key can begin in the authority and end in the path, so both are searched together.
 */
export function loggedPath({ absolute, path }: RequestTarget): string {
  if (absolute === null) return sanitized(path);
  // A key has a bounded length, so the end of the authority is enough to find a key that begins there. The rest is not
  // searched, because the search costs more with each character.
  const before = absolute.authority.slice(-mostBeforePath);
  const shown = cut(path);
  const logged = cutAtKey(before + shown);
  return logged === before + shown ? shown : logged.slice(before.length);
}

/**
 * Truncates client input for a log or a trace. Also cuts it off where an API key begins, because clients put keys into
 * wrong fields. Truncates first, because the search for a key costs more with each character.
 */
function sanitized(value: string): string {
  return cutAtKey(cut(value));
}
