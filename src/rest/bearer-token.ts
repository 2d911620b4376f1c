import { createHash, timingSafeEqual } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import { OperatorError } from '../config/operator-error.js';
import { readOperatorFile, alwaysSecret } from '../config/operator-file.js';
import { Refusal } from './refusal.js';

const shortestToken = 32;
const mostTokenBytes = 4096;
const tokenForm = /^[A-Za-z0-9._~+/=-]+$/;
const headerForm = /^Bearer +(?<token>[A-Za-z0-9._~+/=-]+)$/i;

/**
 * Reads the administrators' bearer token from a file, without surrounding white space.
 * @param option the configuration option that names the file
 * @throws OperatorError if the file cannot be read or has no valid token
 */
export async function readToken(
  file: string | null,
  option: 'registry.tokenFile' | 'services.operators.tokenFile',
): Promise<string> {
  if (file === null) {
    throw new OperatorError(
      `${option} must name a file with a token of at least ${shortestToken} characters, such as \`openssl rand -hex 32\` makes.`,
    );
  }
  const token = (await readOperatorFile(file, 'The token file', mostTokenBytes, alwaysSecret)).toString('utf8').trim();
  if (token.length < shortestToken || !tokenForm.test(token)) {
    throw new OperatorError(
      `The token file ${file} must hold one token of at least ${shortestToken} letters, digits and . _ ~ + / = -.`,
    );
  }
  return token;
}

/**
 * Returns a function that makes an app reject requests without the token. Browsers send `authorization` to another site
 * only after a CORS preflight, which this API never allows. So no web page can act for an administrator.
 */
export function requireToken(token: string): (app: FastifyInstance) => void {
  const expected = digestOf(token);
  return (app) => {
    app.addHook('onRequest', ({ headers, routeOptions }, reply, done) => {
      const given = headerForm.exec(headers.authorization ?? '')?.groups?.token;
      // Digests have equal lengths, so the time of the comparison reveals neither the content nor the length of the
      // token.
      const isRight = given !== undefined && timingSafeEqual(digestOf(given), expected);
      if (isRight || routeOptions.config.isOpen === true) {
        done();
        return;
      }
      reply.header('www-authenticate', 'Bearer');
      done(new Refusal(401, given === undefined ? 'A bearer token is required' : 'Invalid token'));
    });
  };
}

function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
