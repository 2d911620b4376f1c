import path from 'node:path';
import type { InjectOptions } from 'fastify';
import type { Test } from 'tap';
import { createServers, type RegistryOptions } from '../../src/registry/create-registry.js';
import { registryFixture } from '../registry/registry-fixture.js';

/** The origin of the console in tests. */
export const origin = 'https://console.example.com:7443';
const host = new URL(origin).host;

/** The parts of a test request to the console, besides its method and path. */
interface Asked {
  readonly body?: object;
  /** The session cookie. */
  readonly session?: string | undefined;
  readonly headers?: Record<string, string | undefined>;
}

/** A response of the console. */
export interface Shown<Data> {
  readonly status: number;
  readonly headers: Record<string, unknown>;
  readonly cookies: readonly { readonly name: string; readonly value: string }[];
  readonly text: string;
  readonly body: { readonly message: string; readonly data: Data & { readonly code?: string } };
}

/**
 * Creates a registry on the database `url`, with a console whose pages are a few small files.
 * @param behindProxy the addresses of the proxies in front of the console; null without proxies
 */
export async function consoleFixture(
  t: Test,
  url: string,
  further: Partial<RegistryOptions> = {},
  behindProxy: readonly string[] | null = null,
) {
  const registry = await registryFixture(t, url, further);
  const directory = t.testdir({ console: { 'index.html': '<!doctype html>', assets: { 'main-1.js': 'void 0' } } });
  const settings = {
    ...{ origin: () => origin, directory: path.join(directory, 'console'), tls: null, behindProxy },
    merchantApi: () => ({ liveUrl: 'https://api.example.com/v1', testUrl: null, caFile: null }),
  };
  const { app, console } = createServers({ ...registry.options, ...further, console: settings });
  if (console === null) throw new Error('there is no console');
  const pages = console;
  t.teardown(() => Promise.all([console.close(), app.close()]));

  async function ask<Data = unknown>(
    method: NonNullable<InjectOptions['method']>,
    at: string,
    { body, session, headers = {} }: Asked = {},
  ): Promise<Shown<Data>> {
    const all: Record<string, string | undefined> = {
      ...{ host, origin, 'sec-fetch-site': 'same-origin' },
      ...(session === undefined ? {} : { cookie: `__Host-console=${session}` }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...headers,
    };
    const response = await pages.inject({
      ...{ method, url: at },
      headers: Object.fromEntries(Object.entries(all).filter((one): one is [string, string] => one[1] !== undefined)),
      ...(body === undefined ? {} : { payload: JSON.stringify(body) }),
    });
    const isJson = String(response.headers['content-type']).startsWith('application/json');
    return {
      ...{ status: response.statusCode, headers: response.headers, cookies: response.cookies, text: response.body },
      body: (isJson ? response.json() : { message: '', data: {} }) as Shown<Data>['body'],
    };
  }

  /** Creates an administrator and a token; returns both ids and the token. */
  async function createPerson(name: string, roles: readonly string[], merchantId?: string) {
    const body = { name, roles, merchantId };
    const { id } = (await registry.call<{ id: string }>('POST', '/administrators', { body })).body.data;
    const created = await registry.call<{ id: string; token: string }>('POST', '/tokens', {
      body: { name: 'laptop', administratorId: id },
    });
    return { id, token: created.body.data.token, tokenId: created.body.data.id };
  }

  /** Creates a sign-in link for the person who has the token; returns the secret in the link. */
  async function createLink(token: string, body: object = {}): Promise<string> {
    const response = await app.inject({
      ...{ method: 'POST', url: '/console-links', payload: JSON.stringify(body) },
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    });
    const { url: link } = response.json<{ data: { url: string } }>().data;
    t.ok(link.startsWith(`${origin}/console/enter#`));
    return new URL(link).hash.slice(1);
  }

  const enter = (secret: string, session?: string) =>
    ask('POST', '/console/api/enter', { body: { token: secret }, session });

  /** Signs in the person who has the token, with a sign-in link; returns the session cookie. */
  const signIn = async (token: string): Promise<string> => sessionIn(await enter(await createLink(token)));

  const eventsOf = async (action: string) =>
    (
      await registry.call<{ actor: string; proof: string; after: Record<string, unknown> }[]>(
        'GET',
        `/events?action=${action}`,
      )
    ).body.data;

  return { ...registry, app, console, ask, createPerson, createLink, enter, signIn, eventsOf };
}

/** Returns the session cookie that a response sets. */
export function sessionIn({ cookies }: Pick<Shown<unknown>, 'cookies'>): string {
  return cookies.find(({ name }) => name === '__Host-console')?.value ?? '';
}
