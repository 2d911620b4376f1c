import { randomBytes } from 'node:crypto';
import t, { type Test } from 'tap';
import { sql } from '../../src/database/kysely.js';
import { newToken } from '../../src/registry/administrators/token-text.js';
import type { RegistryEvent } from '../../src/registry/events/schema.js';
import type { IdentityProvider } from '../../src/registry/sign-in/provider.js';
import { consoleFixture, origin } from '../console/console-fixture.js';
import { until } from '../registry/manual-time.js';

// One IPv6 subscriber has all addresses of a /64. Regression: one subscriber began sign-ins from 200 of these
// addresses and completed none. After that, nobody else could sign in.

const atProvider = 'https://login.example.com/';
const subscriber = (index: number): string => `2001:db8:0:1::${index.toString(16)}`;
const other = '2001:db8:0:2::1';

/** A registry with an OpenID provider at which nobody completes a sign-in. */
async function fixture(t: Test) {
  const begun = {
    ...{ deviceCode: 'the device code', userCode: 'ABCD', verificationUri: atProvider, verificationUriComplete: null },
    ...{ expiresInSeconds: 600, intervalSeconds: 5 },
  };
  const identityProvider = {
    options: { clientSecret: 'a-client-secret-of-the-tests' },
    browserUrl: () => Promise.resolve(atProvider),
    startDevice: () => Promise.resolve(begun),
  } as unknown as IdentityProvider;
  const registry = await consoleFixture(t, 'sqlite::memory:', { identityProvider });
  const { app, console: pages } = registry;
  const headers = { host: new URL(origin).host };
  const inBrowser = async (remoteAddress: string) =>
    (await pages.inject({ url: '/console/sign-in', remoteAddress, headers })).headers.location;
  const withCode = async (remoteAddress: string) =>
    (await app.inject({ method: 'POST', url: '/sign-in/device', remoteAddress })).statusCode;
  const withWrongToken = async (remoteAddress: string) => {
    const authorization = `Bearer ${newToken(randomBytes)}`;
    return (await app.inject({ url: '/me', remoteAddress, headers: { authorization } })).statusCode;
  };
  return { ...registry, inBrowser, withCode, withWrongToken };
}

t.test('the addresses of an IPv6 /64 begin as many sign-ins together as one address', async (t) => {
  const { inBrowser, withCode } = await fixture(t);
  for (let index = 1; index <= 50; index += 1) t.equal(await inBrowser(subscriber(index)), atProvider);
  t.equal(await inBrowser(subscriber(51)), '/console/?sign-in=too-many');
  t.equal(await inBrowser(other), atProvider);
  for (let index = 1; index <= 20; index += 1) t.equal(await withCode(subscriber(index)), 200);
  t.equal(await withCode(subscriber(21)), 429);
  t.equal(await withCode(other), 200);
});

t.test('the failed attempts of an IPv6 /64 count together, and events have the whole address', async (t) => {
  const { call, time, withWrongToken } = await fixture(t);
  for (let index = 1; index <= 20; index += 1) t.equal(await withWrongToken(subscriber(index)), 401);
  for (let index = 21; index <= 23; index += 1) t.equal(await withWrongToken(subscriber(index)), 429);
  t.equal(await withWrongToken(other), 401);
  const failed = async () =>
    (await call<RegistryEvent[]>('GET', '/events?action=sign-in.failed&per_page=100')).body.data.toReversed();
  const sources = [...Array.from({ length: 20 }, (_, index) => subscriber(index + 1)), other];
  t.same(
    (await failed()).map(({ source }) => source),
    sources,
  );
  time.advance(60_000);
  await until(async () => (await failed()).length > sources.length);
  t.match((await failed()).slice(sources.length), [{ source: subscriber(21), after: { refusals: 3 } }]);
  t.equal((await failed()).length, sources.length + 1, 'one event for all of them');
});

t.test('unknown links do not hold up changes', async (t) => {
  const { ask, database } = await fixture(t);
  const enterWith = (token: string) => ask('POST', '/console/api/enter', { body: { token } });
  for (let index = 1; index <= 20; index += 1) t.equal((await enterWith('x'.repeat(43))).status, 401);
  // Each change updates the revision, so changes wait for each other. A throttled request must make no change.
  await sql`create trigger no_change before update on revision begin select raise(abort, 'a change'); end`.execute(
    database,
  );
  t.equal((await enterWith('x'.repeat(43))).status, 429);
});
