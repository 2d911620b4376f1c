import { success } from '../../rest/envelope.js';
import { Refusal } from '../../rest/refusal.js';
import { noQuery, type RestApp } from '../../rest/rest-app.js';
import { recordFailure } from '../administrators/access.js';
import type { Attempts } from '../administrators/attempts.js';
import { unknownAuthor } from '../administrators/request-author.js';
import type { RegistryContext } from '../registry-context.js';
import { secretIn, sessionCookie, setSession } from './cookies.js';
import { redeemLink } from './links.js';
import { enterBody } from './schema.js';
import { browserOf, sessionIdOf } from './sessions.js';

/**
 * Adds the route that exchanges the token of a one-time link for a session cookie. The token is in the body, because
 * paths appear in logs. The method is POST: mail scanners and link previews send GET requests, which would use the link
 * up.
 */
export function addEnterRoute(app: RestApp, context: RegistryContext, attempts: Attempts): void {
  app.post(
    '/enter',
    { schema: { body: enterBody, querystring: noQuery }, config: { isOpen: true } },
    async (request, reply) => {
      const author = unknownAuthor(request);
      const replaces = await sessionIdOf(context.database, secretIn(request, sessionCookie));
      const from = { source: author.source ?? '', browser: browserOf(request), replaces };
      const entered = await redeemLink(context, author, request.body.token, from);
      if ('cause' in entered) {
        await recordFailure({ cause: entered.cause }, request, reply, attempts);
        // The response does not depend on the cause, so that an attacker cannot find out which links exist.
        const remedy = 'create another link with "merchant-gateway console"';
        throw new Refusal(401, `The link is invalid, used or expired: ${remedy}`, [], 'link_not_valid');
      }
      reply.header('set-cookie', setSession(entered.secret));
      return success('Signed in', { name: entered.name });
    },
  );
}
