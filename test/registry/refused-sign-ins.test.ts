import { randomBytes } from 'node:crypto';
import { setImmediate as turn } from 'node:timers/promises';
import { sql } from 'kysely';
import type { Test } from 'tap';
import { newToken } from '../../src/registry/administrators/token-text.js';
import type { RegistryEvent } from '../../src/registry/events/schema.js';
import type { RegistryDatabase } from '../../src/registry/registry-database.js';
import type { IdentityProvider } from '../../src/registry/sign-in/provider.js';
import { ProviderError } from '../../src/registry/sign-in/provider.js';
import { onEachDatabase } from '../database/each-database.js';
import { until } from './manual-time.js';
import { registryFixture } from './registry-fixture.js';

/** A registry whose OpenID provider is away. */
async function fixture(t: Test, url: string) {
  const provider = {
    options: { clientSecret: 'a-client-secret-of-the-tests' },
    startDevice: () => Promise.reject(new ProviderError('unavailable', 'no connection')),
  } as unknown as IdentityProvider;
  const registry = await registryFixture(t, url, { identityProvider: provider });
  const { app, call, database, time } = registry;
  const wrongToken = async (remoteAddress: string): Promise<number> => {
    const headers = { authorization: `Bearer ${newToken(randomBytes)}` };
    return (await app.inject({ url: '/me', headers, remoteAddress })).statusCode;
  };
  const signIn = async (remoteAddress: string): Promise<number> =>
    (await app.inject({ method: 'POST', url: '/sign-in/device', remoteAddress })).statusCode;
  const refusals = async (): Promise<RegistryEvent[]> =>
    (await call<RegistryEvent[]>('GET', '/events?action=sign-in.failed&per_page=100')).body.data
      .filter(({ after }) => after?.refusals !== undefined)
      .toReversed();
  const count = async (): Promise<number> =>
    Number(
      (
        await database
          .selectFrom('events')
          .select((it) => it.fn.countAll().as('all'))
          .executeTakeFirstOrThrow()
      ).all,
    );
  const endMinute = async (stored: number): Promise<void> => {
    time.advance(60_000);
    await until(async () => (await refusals()).length >= stored);
  };
  return { ...registry, wrongToken, signIn, refusals, count, endMinute };
}

/** Counts transactions from now on: those that are running, and those that have failed. */
function countTransactions(database: RegistryDatabase): { readonly running: number; readonly failed: number } {
  const counts = { running: 0, failed: 0 };
  const transaction = database.transaction.bind(database);
  database.transaction = () => {
    const begun = transaction();
    const execute = begun.execute.bind(begun);
    begun.execute = (act) => {
      counts.running += 1;
      return execute(act)
        .catch((error: unknown) => {
          counts.failed += 1;
          throw error;
        })
        .finally(() => (counts.running -= 1));
    };
    return begun;
  };
  return counts;
}

onEachDatabase(
  'sign-ins refused with 429 or 503 are one event per source and minute, with their number',
  async (t, url) => {
    const { count, endMinute, refusals, signIn, wrongToken } = await fixture(t, url);
    for (let index = 0; index < 20; index += 1) t.equal(await wrongToken('198.51.100.7'), 401);
    const before = await count();
    for (let index = 0; index < 30; index += 1) t.equal(await wrongToken('198.51.100.7'), 429);
    t.equal(await signIn('198.51.100.7'), 503);
    for (let index = 0; index < 3; index += 1) t.equal(await signIn('2001:db8::8'), 503);
    t.equal(await count(), before, 'a throttled source adds no event before the minute has ended');
    await endMinute(2);
    const unproven = { actor: 'unknown', proof: 'unproven', administratorId: null, requestId: /^[0-9a-f-]{36}$/ };
    t.match(await refusals(), [
      {
        ...unproven,
        source: '198.51.100.7',
        after: {
          ...{ cause: 'provider_unavailable, too_many_attempts', refusals: 31, since: '2026-01-15T12:00:00.000Z' },
          causes: { too_many_attempts: 30, provider_unavailable: 1 },
        },
      },
      { ...unproven, source: '2001:db8::8', after: { cause: 'provider_unavailable', refusals: 3 } },
    ]);
    t.equal(await count(), before + 2);
    await signIn('198.51.100.7');
    await endMinute(3);
    t.match((await refusals()).at(-1)?.after, { refusals: 1, since: '2026-01-15T12:01:00.000Z' });
  },
);

onEachDatabase('refusals of many sources stay within the limit of all attempts, and none is lost', async (t, url) => {
  const { call, count, database, signIn, time, wrongToken } = await fixture(t, url);
  const transactions = countTransactions(database);
  for (let index = 0; index < 610; index += 1) {
    const source = `203.0.${index >> 8}.${index & 255}`;
    await signIn(source);
    await signIn(source);
  }
  t.equal(await count(), 0);
  time.advance(60_000);
  // The writer counts the refusals beyond the limit only after it has stored the last event. Until then, the clock must
  // not reach the next minute.
  await until(async () => (await count()) === 600 && transactions.running === 0);
  await turn();
  time.advance(60_000);
  await wrongToken('198.51.100.9');
  const [next] = (await call<RegistryEvent[]>('GET', '/events?per_page=1')).body.data;
  t.match(next, { source: '198.51.100.9', after: { cause: 'unknown', omittedBefore: 20 } });
});

onEachDatabase('refusals whose events cannot be stored are counted in the next event', async (t, url) => {
  const { call, database, signIn, time, wrongToken } = await fixture(t, url);
  const transactions = countTransactions(database);
  await sql`alter table events rename to hidden_events`.execute(database);
  for (const sources of [['198.51.100.7', '198.51.100.8'], ['198.51.100.7']]) {
    for (const source of sources) t.equal(await signIn(source), 503);
    const before = transactions.failed;
    time.advance(60_000);
    await until(() => transactions.failed > before);
  }
  t.ok((await wrongToken('198.51.100.9')) >= 500);
  await sql`alter table hidden_events rename to events`.execute(database);
  await wrongToken('198.51.100.9');
  const [next] = (await call<RegistryEvent[]>('GET', '/events?per_page=1')).body.data;
  t.match(next, { source: '198.51.100.9', after: { cause: 'unknown', omittedBefore: 4 } });
});

onEachDatabase('a registry that stops stores the refusals that it counted', async (t, url) => {
  const { replica, refusals } = await fixture(t, url);
  await replica.inject({ method: 'POST', url: '/sign-in/device', remoteAddress: '198.51.100.7' });
  await replica.close();
  t.match(await refusals(), [{ source: '198.51.100.7', after: { cause: 'provider_unavailable', refusals: 1 } }]);
});
