import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { run } from '../../src/cli/run.js';
import { registryAuthor } from '../../src/registry/events/author.js';
import { recordEvents } from '../../src/registry/events/repository.js';
import type { EventExportPage, RegistryEvent } from '../../src/registry/events/schema.js';
import type { RegistryDatabase } from '../../src/registry/registry-database.js';
import { createPostgresDatabase, onEachDatabase, postgresAlone } from '../database/each-database.js';
import { until } from './manual-time.js';
import { registryFixture, token } from './registry-fixture.js';

type Fixture = Awaited<ReturnType<typeof registryFixture>>;
interface Begun {
  readonly seq: number;
  readonly after: number;
}

async function addEvents(database: RegistryDatabase, count: number): Promise<void> {
  const event = { action: 'merchant.changed', merchantId: 'm_1', keyId: null, before: null } as const;
  const events = Array.from({ length: count }, (_, index) => ({ ...event, after: { name: `n ${index}` } }));
  await database
    .transaction()
    .execute((transaction) => recordEvents(transaction, events, { at: 0, author: registryAuthor, revision: 1 }));
}

async function allSeqs(database: RegistryDatabase): Promise<number[]> {
  return (await database.selectFrom('events').select('seq').orderBy('seq').execute()).map(({ seq }) => seq);
}

async function administrator({ call }: Fixture, name: string, role: string): Promise<Record<string, string>> {
  const body = { name, roles: [role] };
  const { id } = (await call<{ id: string }>('POST', '/administrators', { body })).body.data;
  const created = await call<{ token: string }>('POST', '/tokens', { body: { name: 'x', administratorId: id } });
  return { authorization: `Bearer ${created.body.data.token}` };
}

onEachDatabase(
  'an export is an event with its author, filter and range, and contains what the event says',
  async (t, url) => {
    const fixture = await registryFixture(t, url);
    const { call, createMerchant, database } = fixture;
    const { id } = await createMerchant();
    await createMerchant();
    const headers = { ...(await administrator(fixture, 'otto', 'auditor')), 'x-reason': 'audit%202026' };
    const query = `merchantId=${id}&action=merchant.created&since=2020-01-01T00:00:00Z`;
    const begun = await call<Begun>('POST', `/events/exports?${query}`, { headers });
    t.match(begun, { status: 201, body: { data: { seq: /^\d+$/, after: 0 } } });
    const { seq } = begun.body.data;
    const [event] = (await call<RegistryEvent[]>('GET', '/events?action=events.exported')).body.data;
    t.match(event, {
      ...{ seq, actor: 'otto', administratorId: /^adm_/, proof: /^token:tok_/, reason: 'audit 2026', merchantId: '' },
    });
    const filter = { merchantId: id, action: 'merchant.created', since: '2020-01-01T00:00:00Z' };
    t.same(event?.after, { filter, after: 0 });
    const page = await call<EventExportPage>('GET', `/events/exports/${seq}`, { headers });
    t.match(page.body.data, {
      events: [{ merchantId: id, action: 'merchant.created', hash: /^[0-9a-f]{64}$/ }],
      next: null,
    });
    t.equal(page.body.data.events.length, 1);
    const link = database
      .selectFrom('event_chain')
      .selectAll()
      .where('seq', '=', page.body.data.events[0]?.seq ?? 0);
    t.equal((await link.executeTakeFirstOrThrow()).hash, page.body.data.events[0]?.hash);
  },
);

onEachDatabase(
  'an export ends at its own event, whatever is added meanwhile, and continues after any event',
  async (t, url) => {
    const { call, database } = await registryFixture(t, url);
    await addEvents(database, 3);
    const { seq } = (await call<Begun>('POST', '/events/exports')).body.data;
    const before = await allSeqs(database);
    await addEvents(database, 3);
    const seqsOf = async (id: number, query = ''): Promise<number[]> =>
      (await call<EventExportPage>('GET', `/events/exports/${id}${query}`)).body.data.events.map((one) => one.seq);
    t.same(await seqsOf(seq), before);
    t.equal(before.at(-1), seq);
    t.same(await seqsOf(seq, `?after=${before[1] ?? 0}`), before.slice(2));
    t.same(await seqsOf(seq, `?after=${seq}`), []);
    const later = (await call<Begun>('POST', `/events/exports?after=${seq}`)).body.data;
    t.equal(later.after, seq);
    t.same(await seqsOf(later.seq), (await allSeqs(database)).slice(before.length));
    t.same(await seqsOf(later.seq, '?after=0'), (await allSeqs(database)).slice(before.length), 'not before its range');
  },
);

t.test('an export waits for an event that a former release is storing, and contains it', postgresAlone, async (t) => {
  const { call, database } = await registryFixture(t, await createPostgresDatabase(t));
  await addEvents(database, 1);
  // A registry of a former release locks the revision, but not the end of the chain of events.
  const change = await database.startTransaction().execute();
  await change
    .updateTable('revision')
    .set((it) => ({ value: it('value', '+', 1) }))
    .execute();
  const base = { at: 0, actor: 'former', action: 'merchant.changed', merchant_id: 'm_1', revision: 1 };
  const { seq: former } = await change
    .insertInto('events')
    .values({ ...base, key_id: null, before: null, after: null })
    .returning('seq')
    .executeTakeFirstOrThrow();
  let isRead = false;
  const exporting = (async () => {
    const { seq } = (await call<Begun>('POST', '/events/exports')).body.data;
    const { events } = (await call<EventExportPage>('GET', `/events/exports/${seq}`)).body.data;
    isRead = true;
    return events.map((one) => one.seq);
  })();
  const waiting = sql<{ count: number }>`select count(*) as count from pg_locks where not granted and pid in
    (select pid from pg_stat_activity where datname = current_database())`;
  await until(async () => isRead || Number((await waiting.execute(database)).rows[0]?.count) > 0);
  await change.commit().execute();
  const seqs = await exporting;
  t.ok(seqs.includes(former), 'the event of the former release is in the range');
  t.same(seqs, await allSeqs(database));
});

t.test('only who began an export reads it, and no other event is one', async (t) => {
  const fixture = await registryFixture(t, 'sqlite::memory:');
  const { call, createMerchant, database } = fixture;
  await createMerchant();
  const [otto, olga] = [
    await administrator(fixture, 'otto', 'auditor'),
    await administrator(fixture, 'olga', 'operator'),
  ];
  const { seq } = (await call<Begun>('POST', '/events/exports', { headers: otto })).body.data;
  const status = async (id: number | string, headers: Record<string, string> = otto): Promise<number> =>
    (await call('GET', `/events/exports/${id}`, { headers })).status;
  t.equal(await status(seq), 200);
  t.equal(await status(seq, olga), 404);
  t.equal((await call('GET', `/events/exports/${seq}`)).status, 404, 'with the shared token');
  for (const id of [1, seq + 1, 0, '-1', `${seq}.0`, `0${seq}`, 'x', '9'.repeat(20)])
    t.equal(await status(id), 404, String(id));
  t.equal(await status(seq, await administrator(fixture, 'sue', 'support')), 403);
  const unknown = { action: 'events.exported', merchantId: '', keyId: null, before: null } as const;
  const events = [{ ...unknown, after: { filter: { color: 'red' }, after: 0 } }];
  const { administrator_id } = await database
    .selectFrom('events')
    .selectAll()
    .where('seq', '=', seq)
    .executeTakeFirstOrThrow();
  const author = { ...registryAuthor, actor: 'otto', administratorId: administrator_id };
  const later = await recordEvents(database, events, { at: 0, author, revision: 1 });
  t.equal(await status(later ?? 0), 404, 'a filter of a later release is not ignored');
});

/**
 * Runs `events export`, and calls `between` after each page. Returns the sequence numbers of the exported events, the
 * error output, the length of the longest page, and the last page.
 */
async function exportEvents(t: Test, url: string, args: readonly string[], between: () => Promise<void>) {
  let [out, err] = ['', ''];
  const lines: number[] = [];
  let longest = 0;
  const io = {
    out: (text: string) => {
      out = text;
      longest = Math.max(longest, text.length);
      for (const line of text.trimEnd().split('\n'))
        lines.push((JSON.parse(line) as { event: { sequence: number } }).event.sequence);
    },
    err: (text: string) => (err += text),
    drained: between,
  };
  const file = `${t.testdir({ token })}/token`;
  const status = await run(['events', 'export', '--registry', url, '--token-file', file, ...args], io);
  t.equal(status, 0, err);
  return { lines, err, longest, last: out };
}

onEachDatabase(
  'an export of 20,000 events beside inserts has each sequence number once, page by page',
  async (t, url) => {
    const { app, database, createMerchant } = await registryFixture(t, url);
    const address = await app.listen({ host: '127.0.0.1', port: 0 });
    for (let count = 0; count < 20_000; count += 500) await addEvents(database, 500);
    let pages = 0;
    const inserting: Promise<unknown>[] = [];
    const between = async (): Promise<void> => {
      pages += 1;
      // The first insert ends before the next page is read, the second runs while it is read.
      await addEvents(database, 3);
      inserting.push(createMerchant());
    };
    const first = await exportEvents(t, address, [], between);
    const place = /--after (\d+)\.\n$/.exec(first.err)?.[1] ?? '';
    t.equal(pages, 41, 'a page has at most 500 events');
    t.ok(first.longest < 500 * 1024);
    await Promise.all(inserting);
    const second = await exportEvents(t, address, ['--after', place], () => Promise.resolve());
    t.equal(first.lines.length, 20_001);
    t.equal(String(first.lines.at(-1)), place);
    t.same([...first.lines, ...second.lines], await allSeqs(database), 'in order, without a gap or a duplicate');
  },
);

onEachDatabase('each export of merchants and keys is an event, wherever it begins', async (t, url) => {
  const fixture = await registryFixture(t, url);
  const { call, createMerchant, replica, time } = fixture;
  const { id } = await createMerchant();
  const headers = await administrator(fixture, 'otto', 'auditor');
  const exported = async (): Promise<object[]> =>
    (await call<RegistryEvent[]>('GET', '/events?action=records.exported')).body.data
      .toReversed()
      .map(({ actor, merchantId, after }) => ({ actor, merchantId, ...after }));
  const begin = { actor: 'otto', merchantId: '', environment: null, after: null };
  await call('GET', '/exports', { headers });
  await call('GET', '/exports?after=key:&until=1', { headers });
  t.same(await exported(), [begin], 'one for all pages');
  await call('GET', `/exports?merchantId=${id}&environment=live`, { headers });
  const ofOne = { ...begin, merchantId: id, environment: 'live' };
  t.same(await exported(), [begin, ofOne]);
  await call('GET', `/exports?after=key:&until=1&environment=test`, { headers });
  const middle = { ...begin, environment: 'test', after: 'key:' };
  t.same(await exported(), [begin, ofOne, middle], 'from the middle');
  await replica.inject({ url: '/exports?after=key:', headers });
  time.advance(3_600_000);
  await call('GET', '/exports?after=key:', { headers });
  const later = { ...begin, after: 'key:' };
  t.same(await exported(), [begin, ofOne, middle, later, later], 'at another replica, and after an hour');
  await call('GET', '/exports', { headers });
  t.equal((await exported()).length, 6, 'each beginning');
  t.equal((await call('GET', '/exports?after=x', { headers })).status, 422);
  t.equal((await exported()).length, 6, 'an invalid request is no export');
});
