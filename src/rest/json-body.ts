import type { FastifyInstance, FastifyRequest } from 'fastify';
import { deepestLevel, parseStrictJson, StrictJsonError } from '../json/strict-json.js';
import { Refusal } from './refusal.js';

const methodsWithBody = new Set(['POST', 'PUT', 'PATCH']);
const identity = 'identity';
const longestName = 64;
const utf8 = new TextDecoder('utf-8', { fatal: true });

/** Makes JSON the only kind of body, read strictly and as UTF-8, and not converted by anything later. */
export function acceptJsonBodies(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body: Buffer, done) => {
    // Many clients label even the empty body of a DELETE.
    if (body.length === 0 && !takesBody(request)) {
      done(null);
      return;
    }
    if ((request.headers['content-encoding'] ?? identity).toLowerCase() !== identity) {
      done(new Refusal(415, 'Content-Encoding must be left out: a body is read as it comes'));
      return;
    }
    try {
      done(null, parseStrictJson(utf8.decode(body)));
    } catch (error) {
      const message = error instanceof StrictJsonError ? messageOf(error) : 'The body is not valid UTF-8';
      done(Refusal.invalid([{ path: '', message }]));
    }
  });
  // Fastify asks for a content type only where there is a body.
  app.addHook('onRequest', (request, _reply, done) => {
    const missing = takesBody(request) && request.headers['content-type'] === undefined;
    done(missing ? new Refusal(415, 'Content-Type must be application/json') : undefined);
  });
}

function messageOf({ problem, fieldName }: StrictJsonError): string {
  const field = `The field "${fieldName.slice(0, longestName)}"`;
  const messages = {
    invalid: 'The body is not valid JSON',
    'repeated-name': `${field} is given more than once`,
    'forbidden-name': `${field} is not allowed`,
    'too-deep': `The body is nested more than ${deepestLevel} levels deep`,
    'too-precise': 'The body has a number with more digits than can be kept',
  };
  return messages[problem];
}

/** A route whose schema has no body, such as one that only revokes, takes none. */
function takesBody({ method, is404, routeOptions }: FastifyRequest): boolean {
  return methodsWithBody.has(method) && !is404 && routeOptions.schema?.body !== undefined;
}
