import type { Whereabouts } from '../../gateway/ports.js';
import { cutAtKey } from '../../telemetry/mask-keys.js';
import { cut, decimal, quote, serialise, timeText } from '../../telemetry/serialise.js';
import { uniqueId } from '../../telemetry/unique-id.js';
import type { Credential } from '../../policy/facts.js';
import type { Findings, Exchange } from '../request/exchange.js';
import type { RefusedRequest } from '../server/protocol-errors.js';

/** Whose key came with a request, as far as that is known. */
export type KeyOwner = Pick<Findings, 'credential' | 'answer'>;

/**
 * The access log's line of a request that is over, in ECS field names, as the text of a JSON object. Never a body, a
 * query or a key. `event` is its last member, behind which the chain's number and hash go. Written piece by piece: an
 * object of these fields, made for each request only to be read once by JSON.stringify, would cost three times as much.
 */
export function accessLine(exchange: Exchange, owner: KeyOwner, environment: string): string {
  const { data, found, outcome, forwarded, detail } = exchange;
  const { connection } = data;
  const { clientAddress, match, trace } = found;
  const { credential, answer } = owner;
  const sent = forwarded ? `,"body":{"bytes":${exchange.requestBodyBytes}}` : '';
  const key = keyOf(credential, found.keyFingerprint);
  const tor = outcome === 'tor_blocked' ? found.torListDigest : null;
  const port = connection.port === null ? '' : `,"port":${connection.port}`;
  const revision = credential === null ? '' : `,"revision":${credential.keyRevision}`;
  const record =
    answer && `,"record":{"source":"${answer.source}","age":${decimal(answer.ageMilliseconds, 3)}${revision}}`;
  return (
    `{"@timestamp":"${timeText(data.receivedAt)}"` +
    (trace === null ? '' : `,"trace":{"id":"${trace.traceId}"}`) +
    `,"http":{"request":{"id":"${found.id}","method":${quote(data.method)}${sent}}` +
    `,"response":{"status_code":${exchange.status},"body":{"bytes":${exchange.responseBodyBytes}}}}` +
    `,"url":{"path":${quote(shown(data.target.path))}}` +
    `,"client":{${clientAddress === null ? '' : `"ip":"${clientAddress.text}"`}${placeOf(found.whereabouts)}}` +
    `,"source":{${connection.remote === null ? '' : `"ip":"${connection.remote.text}"${port}`}}` +
    (connection.tls === null ? '' : `,"tls":${tlsText(connection.tls)}`) +
    (credential === null ? '' : `,"organization":{"id":${quote(credential.merchantId)}}`) +
    `,"gateway":{${key}"environment":"${environment}"` +
    (tor === null ? '' : `,"tor_list":{"digest":"${tor}"}`) +
    (record ?? '') +
    (match === null ? '' : `,"route":${quote(match.route.path)}`) +
    `${forwarded ? upstreamOf(exchange) : ''}}` +
    `,"user_agent":{"original":${quote(shown(data.headers.userAgent[0] ?? ''))}}` +
    `,"event":{${eventOf(outcome, forwarded)}` +
    (detail === null ? '' : `,"reason":${quote(shown(detail))}`) +
    `,"duration":${decimal(exchange.duration * 1_000_000, 0)}}}`
  );
}

function upstreamOf({ found: { match }, upstreamDuration }: Exchange): string {
  const duration = upstreamDuration === null ? 'null' : decimal(upstreamDuration, 3);
  return `,"upstream":{"name":${quote(match?.route.upstream ?? '')},"duration":${duration}}`;
}

/** Where the client address is, as far as it is known. */
export function placeOf(whereabouts: Whereabouts | null): string {
  if (whereabouts === null) return '';
  const { countryIsoCode, asNumber } = whereabouts;
  const country = countryIsoCode === null ? '' : `,"geo":{"country_iso_code":${quote(countryIsoCode)}}`;
  return country + (asNumber === null ? '' : `,"as":{"number":${asNumber}}`);
}

/** The line of a request that the HTTP parser refused. */
export function refusedLine(refused: RefusedRequest, environment: string, at: number): string {
  const { id, status, remote, code, detail } = refused;
  return (
    `{"@timestamp":"${timeText(at)}","http":{"request":{"id":"${id}"},"response":{"status_code":${status}}}` +
    `,"source":{${remote === null ? '' : `"ip":"${remote.text}"`}}` +
    `,"gateway":{"environment":"${environment}"}` +
    `,"event":{${eventOf(code)},"reason":${quote(shown(detail))},"duration":0}}`
  );
}

function keyOf(credential: Credential | null, keyFingerprint: string | null): string {
  const id = credential === null ? '' : `"id":${quote(credential.keyId)}`;
  const fingerprint = keyFingerprint === null ? '' : `"fingerprint":"${keyFingerprint}"`;
  if (id === '' && fingerprint === '') return '';
  return `"key":{${id}${id === '' || fingerprint === '' ? '' : ','}${fingerprint}},`;
}

/**
 * The members of `event` that every line of requests has, without braces.
 * @param isAllowed whether the request went to its service, whatever became of it there
 */
export function eventOf(code: string, isAllowed = false): string {
  const accepted = code === 'accepted';
  return (
    `"id":"${uniqueId()}","dataset":"gateway.access","kind":"event","category":["api"]` +
    `,"type":["access","${accepted || isAllowed ? 'allowed' : 'denied'}"],"action":"api-request"` +
    `,"outcome":"${accepted ? 'success' : 'failure'}","code":"${code}"`
  );
}

/** By what is known of a connection, which is the same for all of its requests. */
const tlsTexts = new WeakMap<object, string>();

function tlsText(tls: object): string {
  let text = tlsTexts.get(tls);
  if (text === undefined) {
    text = serialise(tls);
    tlsTexts.set(tls, text);
  }
  return text;
}

/** What a caller sent, as it may stand in a log or a trace: callers put keys where they do not belong. */
export function shown(value: string): string {
  return cut(cutAtKey(value));
}
