import type { FastifyRequest } from 'fastify';
import { success } from '../../rest/envelope.js';
import { Refusal } from '../../rest/refusal.js';
import { noQuery } from '../../rest/rest-app.js';
import Type from '../../typebox/typebox.js';
import { authorOf, callerOf, unknownAuthor } from '../administrators/request-author.js';
import type { Attempts } from '../administrators/attempts.js';
import type { Author } from '../events/author.js';
import type { Routes } from '../routes.js';
import type { IdentityProvider } from './provider.js';
import { deviceSignInSchema, handleBody, sessionSchema } from './schema.js';
import { SignIns } from './sign-ins.js';

/** Dependencies of the sign-in routes. `provider` is null without `registry.oidc`. */
export interface SignInSources {
  readonly attempts: Attempts;
  readonly provider: IdentityProvider | null;
}

/**
 * A sign-in that is refused with one of these statuses gets no event of its own. It is only counted (see
 * `Attempts.refused`).
 */
const counts: ReadonlySet<number> = new Set([429, 503]);

/** Adds the routes by which people sign in with an OpenID provider. Only `/sign-in/out` needs a credential. */
export function signInRoutes({ attempts, provider }: SignInSources): Routes {
  return (app, context) => {
    const signIns = provider && new SignIns({ ...context, attempts, provider });
    const ready = (): SignIns => {
      if (signIns !== null) return signIns;
      throw new Refusal(404, 'This registry has no OpenID provider: set registry.oidc', [], 'sign_in_not_configured');
    };

    /** Calls `act`. Counts the request if `act` refuses it with 429 (too many attempts) or 503 (no usable provider). */
    const counted = async <Result>(
      request: FastifyRequest,
      act: (author: Author) => Promise<Result>,
    ): Promise<Result> => {
      const author = unknownAuthor(request);
      try {
        return await act(author);
      } catch (error) {
        if (error instanceof Refusal && counts.has(error.statusCode)) attempts.refused(error.code ?? '', author);
        throw error;
      }
    };

    app.post(
      '/sign-in/device',
      {
        schema: { querystring: noQuery },
        config: {
          isOpen: true,
          operation: { summary: 'Start a sign-in with a device code', data: deviceSignInSchema },
        },
      },
      async (request) =>
        success('Sign-in started', await counted(request, ({ source }) => ready().start(source ?? ''))),
    );

    app.post(
      '/sign-in/token',
      {
        schema: { querystring: noQuery, body: handleBody },
        config: { isOpen: true, operation: { summary: 'Get the session of an approved sign-in', data: sessionSchema } },
      },
      async (request) =>
        success('Signed in', await counted(request, (author) => ready().redeem(request.body.handle, author))),
    );

    app.post(
      '/sign-in/refresh',
      {
        schema: { querystring: noQuery, body: handleBody },
        config: {
          isOpen: true,
          operation: {
            summary: 'Replace the token of a session by a new one; the roles are read from the OpenID provider again',
            data: sessionSchema,
          },
        },
      },
      async (request) =>
        success('Session refreshed', await counted(request, (author) => ready().refresh(request.body.handle, author))),
    );

    app.post(
      '/sign-in/out',
      {
        schema: { querystring: noQuery },
        config: {
          operation: { summary: 'End the sign-in of this session', data: Type.Null() },
          access: { permission: 'tokens:own', merchant: 'own' },
        },
      },
      async (request) => {
        await ready().end(callerOf(request), authorOf(request));
        return success('Signed out', null);
      },
    );
  };
}
