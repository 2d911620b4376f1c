// The key check of the compared proxies: the format, SHA-256, and a look-up in an LRU map in front of the records.
import { hash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { LRUCache } from 'lru-cache';

/** The settings that the benchmark passes to a proxy: the upstream, its files, and whether to log. */
export const settings = JSON.parse(readFileSync(process.argv[2], 'utf8'));

const records = new Map(Object.entries(JSON.parse(readFileSync(settings.recordsFile, 'utf8'))));
const held = new LRUCache({ max: 100_000 });
const denial = (message) => JSON.stringify({ success: false, message, data: null });
const denials = {
  missing: denial('API Key is required'),
  format: denial('Invalid API key format'),
  unknown: denial('Invalid API Key'),
};
const denialHeaders = { 'content-type': 'application/json; charset=utf-8', 'cache-control': 'no-store' };

/** The merchant of the key, or the body of the 401 response. */
export function checkKey(headers) {
  const key = headers['x-api-key'];
  if (key === undefined || key === '') return { denial: denials.missing };
  if (!key.startsWith('svc_live_')) return { denial: denials.format };
  const lookupId = hash('sha256', key);
  let record = held.get(lookupId);
  if (record === undefined) {
    record = records.get(lookupId);
    if (record === undefined) return { denial: denials.unknown };
    held.set(lookupId, record);
  }
  return record;
}

/** Responds with 401. */
export function deny(response, body) {
  response.writeHead(401, { ...denialHeaders, 'content-length': body.length });
  response.end(body);
}

/** Checks the key of a request and sets the headers for the upstream; returns false after a 401 response. */
export function admit(request, response) {
  const { denial: body, merchantId } = checkKey(request.headers);
  if (body !== undefined) {
    deny(response, body);
    return false;
  }
  delete request.headers['x-api-key'];
  request.headers['x-merchant-id'] = merchantId;
  return true;
}

/** The path for the upstream: without the base path. */
export function upstreamPath(url) {
  return url.slice('/v1'.length);
}

/** The options of `https.createServer`. */
export function certificate() {
  return { cert: readFileSync(settings.certFile), key: readFileSync(settings.keyFile) };
}

/** Prints the ports for the benchmark. */
export function ready(httpPort, httpsPort) {
  console.log(JSON.stringify({ ready: { http: httpPort, https: httpsPort } }));
}

/** Listens on two ports, without and with TLS. */
export function listen(handler) {
  const plain = http.createServer(handler).listen(0, '127.0.0.1', () => {
    const secure = https.createServer(certificate(), handler).listen(0, '127.0.0.1', () => {
      ready(plain.address().port, secure.address().port);
    });
  });
}
