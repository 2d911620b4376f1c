import { success } from '../../rest/envelope.js';
import { Refusal } from '../../rest/refusal.js';
import { noQuery } from '../../rest/rest-app.js';
import Type from '../../typebox/typebox.js';
import { authorOf, callerOf, unknownAuthor } from '../administrators/access.js';
import type { Attempts } from '../administrators/attempts.js';
import type { Routes } from '../routes.js';
import type { IdentityProvider } from './provider.js';
import { deviceSignInSchema, handleBody, sessionSchema } from './schema.js';
import { SignIns } from './sign-ins.js';

/** Dependencies of the sign-in routes; `provider` is null without `registry.oidc`. */
export interface SignInSources {
  readonly attempts: Attempts;
  readonly provider: IdentityProvider | null;
}

/** Returns the routes by which people sign in with an OpenID provider. All but `/sign-in/out` are open. */
export function signInRoutes({ attempts, provider }: SignInSources): Routes {
  return (app, context) => {
    const signIns = provider && new SignIns({ ...context, attempts, provider });
    const ready = (): SignIns => {
      if (signIns !== null) return signIns;
      throw new Refusal(404, 'This registry has no OpenID provider (registry.oidc)', [], 'sign_in_not_configured');
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
      async (request) => success('Sign-in started', await ready().start(unknownAuthor(request).source ?? '')),
    );

    app.post(
      '/sign-in/token',
      {
        schema: { querystring: noQuery, body: handleBody },
        config: { isOpen: true, operation: { summary: 'Get the session of an approved sign-in', data: sessionSchema } },
      },
      async (request) => success('Signed in', await ready().redeem(request.body.handle, unknownAuthor(request))),
    );

    app.post(
      '/sign-in/refresh',
      {
        schema: { querystring: noQuery, body: handleBody },
        config: {
          isOpen: true,
          operation: { summary: 'Replace a session; the roles are read again', data: sessionSchema },
        },
      },
      async (request) =>
        success('Session refreshed', await ready().refresh(request.body.handle, unknownAuthor(request))),
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
