import type { FastifyRequest } from 'fastify';

/**
 * The cookie of a session. Browsers accept a cookie with the prefix `__Host-` only with Secure and Path=/, and without
 * Domain. So no other host of the domain can set this cookie.
 */
export const sessionCookie = '__Host-console';
/** The cookie of a sign-in that is waiting at the OpenID provider. */
export const signInCookie = '__Host-console-login';

const secretForm = /^[A-Za-z0-9_-]{43}$/;

/**
 * Returns the secret in a cookie; null without the cookie. Returns `malformed` if the value has the wrong form, or if
 * two cookies have that name, which browsers never send.
 */
export function secretIn({ headers }: FastifyRequest, name: string): { readonly secret: string } | 'malformed' | null {
  const pairs = (headers.cookie ?? '').split(';').map((pair) => pair.trim());
  const [first, ...others] = pairs.filter((pair) => pair.startsWith(`${name}=`));
  if (first === undefined) return null;
  const secret = first.slice(name.length + 1);
  return others.length === 0 && secretForm.test(secret) ? { secret } : 'malformed';
}

/**
 * Returns the header that sets a session cookie. It has no Max-Age, so the browser deletes the cookie when it is
 * closed.
 */
export function setSession(secret: string): string {
  return `${sessionCookie}=${secret}; Path=/; Secure; HttpOnly; SameSite=Strict`;
}

/** Returns the header that deletes the session cookie. */
export const clearSession = `${sessionCookie}=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0`;

/**
 * Returns the header that sets the cookie of a sign-in. It is Lax: browsers do not send a Strict cookie when the
 * provider redirects back.
 */
export function setSignIn(secret: string, seconds: number): string {
  return `${signInCookie}=${secret}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=${seconds}`;
}

/** Returns the header that deletes the cookie of a sign-in. */
export const clearSignIn = `${signInCookie}=; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0`;
