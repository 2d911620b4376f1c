// The check of keys that the peers are given: the form, SHA-256, a look-up in an LRU map before the records.
import { hash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { LRUCache } from 'lru-cache';

/** What the benchmark tells a peer: where the upstream is, its files, and whether it logs. */
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

/** Whose key it is, or the body of the 401. */
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

/** Answers 401. */
export function deny(response, body) {
  response.writeHead(401, { ...denialHeaders, 'content-length': body.length });
  response.end(body);
}

/** Checks the key of a request, and gives it the headers that go upstream; false where it has been answered. */
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

/** The path below the base path, which is what the upstream gets. */
export function upstreamPath(url) {
  return url.slice('/v1'.length);
}

/** What `https.createServer` is given. */
export function certificate() {
  return { cert: readFileSync(settings.certFile), key: readFileSync(settings.keyFile) };
}

/** Tells the benchmark the ports. */
export function ready(httpPort, httpsPort) {
  console.log(JSON.stringify({ ready: { http: httpPort, https: httpsPort } }));
}

/** Listens without and with TLS. */
export function listen(handler) {
  const plain = http.createServer(handler).listen(0, '127.0.0.1', () => {
    const secure = https.createServer(certificate(), handler).listen(0, '127.0.0.1', () => {
      ready(plain.address().port, secure.address().port);
    });
  });
}
