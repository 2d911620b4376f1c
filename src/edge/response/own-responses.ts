import type { FastifyReply } from 'fastify';
import type { ownPaths } from '../../policy/route-paths.js';
import { timeText } from '../../telemetry/serialise.js';
import type { Exchange } from '../request/exchange.js';
import { sendResponse } from './whole-response.js';

type OwnPath = (typeof ownPaths)[number];

/**
 * Sends the gateway's own response to an accepted request whose route has no upstream.
 * @param publicApi the OpenAPI description of the merchant API, as JSON
 */
export function sendOwnResponse(reply: FastifyReply, publicApi: string): void {
  const { exchange } = reply.request;
  const bodies: Readonly<Record<OwnPath, () => string>> = {
    '/whoami': () => whoami(exchange),
    '/openapi.json': () => publicApi,
  };
  const path = exchange.found.match?.route.path as OwnPath;
  const body = inAscii(bodies[path]());
  exchange.ownBodyBytes = body.length;
  sendResponse(
    reply,
    200,
    [
      ...exchange.found.responseHeaders,
      ...['content-type', 'application/json; charset=utf-8'],
      ...['content-length', String(body.length)],
      ...['cache-control', 'no-store'],
      ...['x-content-type-options', 'nosniff'],
    ],
    body,
  );
}

/** Returns a JSON description of a request's key and client, as the gateway sees them. */
function whoami({ data, found }: Exchange): string {
  const { id, credential, facts } = found;
  if (credential === null || facts === null) throw new Error('a request without a credential was about to be served');
  const { remote, via } = data.connection;
  return JSON.stringify({
    success: true,
    message: 'The key is valid',
    data: {
      merchant: { id: credential.merchantId, name: credential.merchantName },
      key: {
        id: credential.keyId,
        label: credential.keyLabel,
        permissions: credential.permissions.entries,
        expiresAt: timeOrNull(credential.expiresAt),
        graceEndsAt: timeOrNull(credential.graceEndsAt),
      },
      environment: credential.environment,
      client: {
        address: facts.clientAddress.text,
        // If X-Forwarded-For names the client, `clientAddress` is a different object from `remote`; otherwise, both are
        // the same object.
        source: facts.clientAddress === remote ? via : 'x-forwarded-for',
        // A client whose address is not on the allowlist was denied earlier.
        onIpAllowlist: credential.ipAllowlist === null ? null : true,
      },
      requestId: id,
      time: timeText(data.receivedAt),
    },
  });
}

function timeOrNull(moment: number | null): string | null {
  return moment === null ? null : timeText(moment);
}

/** Escapes all non-ASCII characters in JSON, because bodies are written with one byte per character. */
function inAscii(json: string): string {
  return json.replaceAll(
    /[\u007f-\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
