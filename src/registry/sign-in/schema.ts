import Type, { type Static } from '../../typebox/typebox.js';

const moment = Type.String({ format: 'date-time' });
const textOrNull = Type.Union([Type.Null(), Type.String()]);

/**
 * The response that begins a sign-in, which then waits for the person's approval. `handle` is the secret with which the
 * client continues the sign-in. No other response contains it.
 */
export const deviceSignInSchema = Type.Object({
  handle: Type.String(),
  verificationUri: Type.String(),
  verificationUriComplete: textOrNull,
  userCode: Type.String(),
  intervalSeconds: Type.Integer(),
  expiresInSeconds: Type.Integer(),
});

/** A sign-in that waits for the person's approval. */
export type DeviceSignIn = Static<typeof deviceSignInSchema>;

/**
 * A session token, and the handle (secret) with which the client refreshes it. `handle` is null if the provider issued
 * no refresh token.
 */
export const sessionSchema = Type.Object({
  token: Type.String(),
  expiresAt: moment,
  name: Type.String(),
  roles: Type.Array(Type.String()),
  handle: textOrNull,
  signInExpiresAt: moment,
});

/** A session token, and the handle that refreshes it. */
export type Session = Static<typeof sessionSchema>;

/** The body of a request with a handle, the secret with which a client continues its sign-in. */
export const handleBody = Type.Object({
  handle: Type.String({
    pattern: /^[A-Za-z0-9_-]{43}$/,
    description:
      'the secret that continues this sign-in: the value of handle in the newest response about this sign-in',
  }),
});
