import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Test } from 'tap';
import { ClaimRules, type RoleRule } from '../../src/registry/sign-in/claims.js';
import { IdentityProvider } from '../../src/registry/sign-in/provider.js';

/** The client secret of the registry at the test's provider. */
export const clientSecret = 'the-client-secret-of-the-tests-0123456789';

/** Starts oidc-provider on loopback. `groups` holds the groups of each person and may change at any time. */
export async function openIdProvider(
  t: Test,
  groups: Map<string, string[]>,
  rules: readonly RoleRule[],
  redirectUris: readonly string[] = [],
) {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const issuer = `http://localhost:${(server.address() as AddressInfo).port}`;
  // @ts-expect-error oidc-provider has no types
  const { default: Provider } = (await import('oidc-provider')) as {
    default: new (issuer: string, options: object) => { callback(): (...parts: unknown[]) => void };
  };
  const provider = new Provider(issuer, {
    clients: [
      {
        ...{ client_id: 'registry', client_secret: clientSecret, redirect_uris: redirectUris },
        response_types: redirectUris.length === 0 ? [] : ['code'],
        grant_types: [
          'urn:ietf:params:oauth:grant-type:device_code',
          'refresh_token',
          ...(redirectUris.length === 0 ? [] : ['authorization_code']),
        ],
      },
    ],
    features: { deviceFlow: { enabled: true }, revocation: { enabled: true } },
    claims: { openid: ['sub', 'groups'], profile: ['preferred_username'] },
    conformIdTokenClaims: false,
    cookies: { keys: ['a key of the tests'] },
    issueRefreshToken: () => true,
    rotateRefreshToken: true,
    findAccount: (_context: unknown, sub: string) => ({
      accountId: sub,
      claims: () => ({ sub, preferred_username: `${sub}@example.com`, groups: groups.get(sub) ?? [] }),
    }),
  });
  server.on('request', provider.callback());
  const stop = async (): Promise<void> => {
    if (!server.listening) return;
    server.close();
    server.closeAllConnections();
    await once(server, 'close');
  };
  t.teardown(stop);
  const options = { issuer, clientId: 'registry', clientSecret, scope: 'openid profile offline_access' };
  const client = new IdentityProvider({ ...options, rules: new ClaimRules(rules, null) }, Date.now);
  return { issuer, client, stop, approve: (code: string, sub: string) => approve(issuer, code, sub), signIn };
}

/** A browser's cookies, and a way to follow redirects with them. */
class Browsing {
  readonly #jar = new Map<string, string>();
  #url: URL;
  #form: URLSearchParams | null = null;

  constructor(
    url: URL,
    /** If a redirect leads to a URL that begins with this text, `send` returns the URL and does not follow it. */
    readonly end: string | null = null,
  ) {
    this.#url = url;
  }

  /** Returns the page at the end of the redirects, or the URL that begins with `end`. */
  async send(): Promise<string> {
    for (let hops = 0; hops < 10; hops += 1) {
      const response: Response = await fetch(this.#url, {
        method: this.#form === null ? 'GET' : 'POST',
        body: this.#form,
        redirect: 'manual',
        headers: { cookie: [...this.#jar].map(([name, value]) => `${name}=${value}`).join('; ') },
      });
      for (const cookie of response.headers.getSetCookie()) {
        const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(cookie) ?? [];
        if (value === '') this.#jar.delete(name);
        else this.#jar.set(name, value);
      }
      const to = response.headers.get('location');
      if (to === null) return response.text();
      if (this.end !== null && to.startsWith(this.end)) return to;
      this.#url = new URL(to, this.#url);
      this.#form = null;
    }
    throw new Error('too many redirects');
  }

  post(html: string, fields: Record<string, string>): Promise<string> {
    this.#url = new URL(/action="([^"]+)"/.exec(html)?.[1] ?? '', this.#url);
    this.#form = new URLSearchParams(fields);
    return this.send();
  }

  /** Signs in and consents. Returns the last page, or the URL that begins with `end`. */
  async signIn(page: string, sub: string): Promise<string> {
    const after = await this.post(page, { prompt: 'login', login: sub, password: 'any' });
    return after.includes('prompt" value="consent"') ? this.post(after, { prompt: 'consent' }) : after;
  }
}

/** Signs a person in at the URL of the provider. Returns the URL to which the provider sends the browser back. */
async function signIn(url: string, sub: string, end: string): Promise<string> {
  const browsing = new Browsing(new URL(url), end);
  return browsing.signIn(await browsing.send(), sub);
}

/**
 * Does what a person does in a browser: enters the code, confirms it, signs in and consents. Returns the last page.
 */
async function approve(issuer: string, userCode: string, sub: string): Promise<string> {
  const browsing = new Browsing(new URL('/device', issuer));
  const xsrf = (html: string): string => /name="xsrf" value="([^"]+)"/.exec(html)?.[1] ?? '';
  let page = await browsing.send();
  page = await browsing.post(page, { xsrf: xsrf(page), user_code: userCode });
  page = await browsing.post(page, { xsrf: xsrf(page), user_code: userCode, confirm: 'yes' });
  return browsing.signIn(page, sub);
}
