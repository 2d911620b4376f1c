import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Test } from 'tap';
import { ClaimRules, type RoleRule } from '../../src/registry/sign-in/claims.js';
import { IdentityProvider } from '../../src/registry/sign-in/provider.js';

/** The client secret of the registry at the test's provider. */
const clientSecret = 'the-client-secret-of-the-tests-0123456789';

/** Starts oidc-provider on loopback. `groups` holds the groups of each person and may change at any time. */
export async function openIdProvider(t: Test, groups: Map<string, string[]>, rules: readonly RoleRule[]) {
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
        ...{ client_id: 'registry', client_secret: clientSecret, redirect_uris: [], response_types: [] },
        grant_types: ['urn:ietf:params:oauth:grant-type:device_code', 'refresh_token'],
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
  return { issuer, client, stop, approve: (code: string, sub: string) => approve(issuer, code, sub) };
}

/** Does what a person does in a browser: enters the code, confirms it, signs in and consents. */
async function approve(issuer: string, userCode: string, sub: string): Promise<string> {
  const jar = new Map<string, string>();
  let url = new URL('/device', issuer);
  let form: URLSearchParams | null = null;
  const send = async (): Promise<string> => {
    for (let hops = 0; hops < 10; hops += 1) {
      const response: Response = await fetch(url, {
        method: form === null ? 'GET' : 'POST',
        body: form,
        redirect: 'manual',
        headers: { cookie: [...jar].map(([name, value]) => `${name}=${value}`).join('; ') },
      });
      for (const cookie of response.headers.getSetCookie()) {
        const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(cookie) ?? [];
        if (value === '') jar.delete(name);
        else jar.set(name, value);
      }
      const to = response.headers.get('location');
      if (to === null) return response.text();
      url = new URL(to, url);
      form = null;
    }
    throw new Error('too many redirects');
  };
  const xsrf = (html: string): string => /name="xsrf" value="([^"]+)"/.exec(html)?.[1] ?? '';
  const post = (html: string, fields: Record<string, string>): Promise<string> => {
    url = new URL(/action="([^"]+)"/.exec(html)?.[1] ?? '', url);
    form = new URLSearchParams(fields);
    return send();
  };
  let page = await send();
  page = await post(page, { xsrf: xsrf(page), user_code: userCode });
  page = await post(page, { xsrf: xsrf(page), user_code: userCode, confirm: 'yes' });
  page = await post(page, { prompt: 'login', login: sub, password: 'any' });
  return page.includes('prompt" value="consent"') ? post(page, { prompt: 'consent' }) : page;
}
