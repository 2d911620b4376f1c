import t from 'tap';
import { type Author, registryAuthor } from '../../src/registry/events/author.js';
import { type NewEvent, recordEvents } from '../../src/registry/events/repository.js';
import type { RegistryEvent } from '../../src/registry/events/schema.js';
import { onEachDatabase } from '../database/each-database.js';
import { registryFixture } from './registry-fixture.js';

const ada: Author = {
  ...{ actor: 'ada', administratorId: 'adm_1', proof: 'token:tok_1', claimed: null },
  ...{ source: '2001:db8::7', requestId: '0b5c7a1e-0000-4000-8000-000000000001', reason: 'ticket 4711: Müller' },
};
const shared: Author = { ...ada, actor: 'bootstrap', administratorId: null, proof: 'bootstrap', claimed: 'bea' };
const other: Author = { ...ada, source: '198.51.100.7', requestId: 'another', reason: null, proof: 'session:tok_2' };

onEachDatabase('events are filtered by each of their fields, and by several at once', async (t, url) => {
  const { call, database } = await registryFixture(t, url);
  const store = async (at: number, revision: number, author: Author, event: Partial<NewEvent>): Promise<void> => {
    const base = { action: 'merchant.changed', merchantId: 'm_1', keyId: null, before: null, after: null } as const;
    await recordEvents(database, [{ ...base, ...event }], { at, author, revision });
  };
  await store(Date.UTC(2026, 0, 1), 1, ada, {});
  await store(Date.UTC(2026, 0, 2), 2, shared, { keyId: 'key_1', action: 'key.created' });
  await store(Date.UTC(2026, 0, 3), 3, other, { merchantId: 'm_2' });
  await store(Date.UTC(2026, 0, 4), 4, registryAuthor, { action: 'record.forged', merchantId: '' });
  const found = async (query: Record<string, string>): Promise<number[]> => {
    const { status, body } = await call<RegistryEvent[]>('GET', `/events?${new URLSearchParams(query).toString()}`);
    t.equal(status, 200, JSON.stringify(body));
    t.equal(body.meta?.total_records, body.data.length);
    return body.data.map(({ revision }) => revision).toReversed();
  };
  const [first] = (await call<RegistryEvent[]>('GET', '/events?revision=1')).body.data;
  const cases: [query: Record<string, string>, revisions: number[]][] = [
    [{}, [1, 2, 3, 4]],
    [{ seq: String(first?.seq) }, [1]],
    [{ seq: '0' }, []],
    [{ merchantId: 'm_1' }, [1, 2]],
    [{ keyId: 'key_1' }, [2]],
    [{ action: 'merchant.changed' }, [1, 3]],
    [{ actor: 'ada' }, [1, 3]],
    [{ actor: 'Ada' }, []],
    [{ administratorId: 'adm_1' }, [1, 3]],
    [{ proof: 'bootstrap' }, [2]],
    [{ proof: 'session:tok_2' }, [3]],
    [{ claimed: 'bea' }, [2]],
    [{ source: '198.51.100.7' }, [3]],
    [{ source: '2001:DB8:0:0::0007' }, [1, 2]],
    [{ requestId: 'another' }, [3]],
    [{ reason: 'ticket 4711: Müller' }, [1, 2]],
    [{ reason: 'ticket' }, []],
    [{ revision: '4' }, [4]],
    [{ since: '2026-01-02T00:00:00Z' }, [2, 3, 4]],
    [{ until: '2026-01-02T01:00:00+01:00' }, [1]],
    [{ since: '2026-01-02T00:00:00Z', until: '2026-01-03T00:00:00.001Z' }, [2, 3]],
    [{ actor: 'ada', merchantId: 'm_2', source: '198.51.100.7' }, [3]],
    [{ actor: 'ada', merchantId: 'm_2', source: '2001:db8::7' }, []],
    [{ keyId: 'key_1', since: '2026-01-03T00:00:00Z' }, []],
  ];
  for (const [query, revisions] of cases) t.same(await found(query), revisions, JSON.stringify(query));
});

t.test('each field of an event but its time and its states has a filter of the same name', async (t) => {
  const { app, call, createMerchant } = await registryFixture(t, 'sqlite::memory:');
  await createMerchant();
  const [event] = (await call<RegistryEvent[]>('GET', '/events')).body.data;
  const { paths } = (await app.inject('/openapi.json')).json<{
    paths: Record<string, Record<string, { parameters: { name: string }[] }>>;
  }>();
  for (const [path, method, others] of [
    ['/events', 'get', ['page', 'per_page']],
    ['/events/exports', 'post', ['after', 'x-actor']],
  ] as const) {
    const names = paths[path]?.[method]?.parameters.map(({ name }) => name) ?? [];
    const fields = Object.keys(event ?? {}).filter((name) => !['at', 'before', 'after'].includes(name));
    t.same(names.toSorted(), [...fields, 'since', 'until', 'x-reason', ...others].toSorted(), path);
  }
});

t.test('an invalid filter is a 422 that names it', async (t) => {
  const { call, database } = await registryFixture(t, 'sqlite::memory:');
  const cases: [query: Record<string, string>, message: string | RegExp][] = [
    [{ since: '2026-02-30T00:00:00Z' }, 'since must be a date and time that exists'],
    [{ until: '2026-02-30T00:00:00Z' }, 'until must be a date and time that exists'],
    [{ until: 'tomorrow' }, /^until must be a date and time with its zone/],
    [{ since: '2026-01-02T00:00:00Z', until: '2026-01-02T00:00:00Z' }, 'until must be later than since'],
    [{ since: '2026-01-02T00:00:00Z', until: '2026-01-02T00:30:00+01:00' }, 'until must be later than since'],
    [{ source: '10.0.0.0/8' }, 'source must be an IP address'],
    [{ source: '999.1.1.1' }, 'source must be an IP address'],
    [{ actor: 'a b' }, /^actor must be a name of 1 to 64/],
    [{ claimed: 'x'.repeat(65) }, /^claimed must be a name of 1 to 64/],
    [{ administratorId: '' }, 'administratorId must be the id of an administrator'],
    [
      { proof: 'token' },
      'proof must be bootstrap (the shared token), registry (the registry itself), unproven (a failed sign-in), token:ID or session:ID',
    ],
    [{ requestId: 'x'.repeat(65) }, 'requestId must be the id of an HTTP request'],
    [{ reason: 'a\nb' }, /^reason must be a text of 1 to 200 characters on one line/],
    [{ reason: 'x'.repeat(201) }, /^reason must be a text of 1 to 200/],
    [{ revision: '-1' }, /^revision must be a whole number/],
    [{ seq: '9'.repeat(16) }, /^seq must be a whole number/],
    [{ before: 'x' }, 'before is not a known query parameter'],
  ];
  for (const [query, message] of cases) {
    const text = new URLSearchParams(query).toString();
    t.match(await call('GET', `/events?${text}`), { status: 422, body: { message } }, text);
    t.match(await call('POST', `/events/exports?${text}`), { status: 422, body: { message } }, text);
  }
  t.match((await call('GET', '/events?seq=x&until=y&source=1')).body, { data: { errors: { length: 3 } } });
  t.same(await database.selectFrom('events').selectAll().execute(), [], 'an invalid export is no event');
});

onEachDatabase('a member finds only events of the own merchant, with any filter', async (t, url) => {
  const { call, createMerchant } = await registryFixture(t, url);
  const [own, foreign] = [await createMerchant(), await createMerchant()];
  const body = { name: 'mo', roles: ['merchant-viewer'], merchantId: own.id };
  const { id } = (await call<{ id: string }>('POST', '/administrators', { body })).body.data;
  const created = await call<{ token: string }>('POST', '/tokens', { body: { name: 'x', administratorId: id } });
  const headers = { authorization: `Bearer ${created.body.data.token}` };
  const all = (await call<RegistryEvent[]>('GET', '/events?per_page=100')).body.data;
  const visible = all.filter(({ merchantId }) => merchantId === own.id).map(({ seq }) => seq);
  t.ok(visible.length > 0 && visible.length < all.length);
  const filters = ['', 'actor=bootstrap', 'proof=bootstrap', 'source=127.0.0.1', 'since=2020-01-01T00:00:00Z'];
  for (const filter of [...filters, 'until=2030-01-01T00:00:00Z']) {
    const { data } = (await call<RegistryEvent[]>('GET', `/events?per_page=100&${filter}`, { headers })).body;
    t.same(
      data.map(({ seq }) => seq),
      visible,
      filter,
    );
  }
  for (const { seq, merchantId, revision, requestId } of all) {
    if (merchantId === own.id) continue;
    for (const filter of [
      `seq=${seq}`,
      `requestId=${requestId ?? ''}`,
      `merchantId=${foreign.id}&revision=${revision}`,
    ])
      t.match(await call('GET', `/events?${filter}`, { headers }), { body: { meta: { total_records: 0 } } }, filter);
  }
  t.equal((await call('POST', '/events/exports', { headers })).status, 404, 'a member exports nothing');
});
