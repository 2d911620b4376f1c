import type { FastifyRequest } from 'fastify';

/**
 * The name of the cookie of a session. Browsers accept a cookie with the prefix `__Host-` only with Secure and Path=/,
 * and without Domain. So no other host of the domain can set this cookie.
 */
export const sessionCookie = '__Host-console';
/** The name of the cookie that binds a sign-in at the OpenID provider to the browser that began it. */
export const signInCookie = '__Host-console-login';

const secretForm = /^[A-Za-z0-9_-]{43}$/;

/**
 * Returns the secret in the cookie with this name; null if the request has no such cookie. Returns `malformed` if the
 * value has the wrong form. Also returns `malformed` for two cookies with this name: browsers never send both.
 */
export function secretIn({ headers }: FastifyRequest, name: string): { readonly secret: string } | 'malformed' | null {
  const pairs = (headers.cookie ?? '').split(';').map((pair) => pair.trim());
  const [first, ...others] = pairs.filter((pair) => pair.startsWith(`${name}=`));
  if (first === undefined) return null;
  const secret = first.slice(name.length + 1);
  return others.length === 0 && secretForm.test(secret) ? { secret } : 'malformed';
}

/**
 * Returns the Set-Cookie header of a session. The cookie has no Max-Age, so the browser deletes it when the browser is
 * closed.
 */
export function setSession(secret: string): string {
  return `${sessionCookie}=${secret}; Path=/; Secure; HttpOnly; SameSite=Strict`;
}

/** The value of the Set-Cookie header that deletes the session cookie. */
export const clearSession = `${sessionCookie}=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0`;

/**
 * Returns the Set-Cookie header of a sign-in. The cookie is Lax, because browsers do not send a Strict cookie when the
 * provider redirects back.
 */
export function setSignIn(secret: string, seconds: number): string {
  return `${signInCookie}=${secret}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=${seconds}`;
}

/** The value of the Set-Cookie header that deletes the cookie of a sign-in. */
export const clearSignIn = `${signInCookie}=; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0`;
