import { createKey, revokeKey } from '../../src/registry/keys/key-changes.js';
import { createMerchant } from '../../src/registry/merchants/repository.js';
import type { RecordRequest, RecordInbox } from '../../src/gateway/store-ports.js';
import type { Test } from 'tap';
import { registryAuthor } from '../../src/registry/events/author.js';
import { onEachDatabase } from '../database/each-database.js';
import { MemoryWatch } from './memory-watch.js';
import { projectionFixture } from './projection-fixture.js';

/** An inbox of record requests from gateways, filled by the test. */
class MemoryInbox implements RecordInbox {
  onWork = (): void => undefined;
  waiting: RecordRequest[] = [];
  readonly replies = new Map<string, string>();

  ask(...records: readonly string[]): void {
    this.waiting.push(...records.map((record) => ({ name: `ask:${record}`, record })));
  }

  take(most: number): RecordRequest[] {
    return this.waiting.splice(0, most);
  }

  reply(asks: readonly RecordRequest[], present: ReadonlySet<string>, generation: string): Promise<void> {
    for (const { record } of asks)
      this.replies.set(record, `${present.has(record) ? 'written' : 'absent'} in ${generation}`);
    return Promise.resolve();
  }
}

async function askedFixture(t: Test, url: string) {
  const fixture = await projectionFixture(t, url);
  const { context, projection, store } = fixture;
  const [inbox, watch] = [new MemoryInbox(), new MemoryWatch(store)];
  [store.inbox, store.watched] = [inbox, watch];
  const one = projection('one');
  await one.run();
  const merchant = await createMerchant(context, registryAuthor, { name: 'x', status: 'ACTIVE', goLive: true });
  const key = await createKey(context, registryAuthor, merchant.id, { environment: 'live' });
  await one.run();
  await one.run();
  const [name = ''] = [...store.records.keys()].filter((record) => record.startsWith('key:'));
  return { ...fixture, inbox, watch, one, merchant, key, name };
}

onEachDatabase('a requested record is rewritten with its merchant, or reported as absent', async (t, url) => {
  const { inbox, merchant, name, one, store } = await askedFixture(t, url);
  const generation = store.meta?.generation ?? '';
  store.records.clear();
  const others = [`key:${'0'.repeat(64)}`, 'key:a name\0that PostgreSQL refuses', 'another'];
  inbox.ask(name, ...others);
  await one.run();
  t.same([...store.records.keys()].toSorted(), [name, `merchant:${merchant.id}`]);
  t.equal(inbox.replies.get(name), `written in ${generation}`);
  for (const other of others) t.equal(inbox.replies.get(other), `absent in ${generation}`);
});

onEachDatabase('record requests from gateways do not delay the projection of changes', async (t, url) => {
  const { context, inbox, key, one, store } = await askedFixture(t, url);
  inbox.ask(...Array.from({ length: 2_000 }, (_, number) => `key:${number}`));
  await revokeKey(context, registryAuthor, key.keyId);
  let replied = -1;
  store.fails = (call) => {
    if (call === 'publish') replied = inbox.replies.size;
    return null;
  };
  await one.run();
  t.ok(replied >= 0 && replied < 2_000, `${replied} record requests were served before the change was published`);
  t.equal(inbox.replies.size, 2_000);
});

// `isComplete` allows gateways to treat an absent record as an unknown key, which is a 401.
onEachDatabase(
  'the store is not reported as complete while an unauthorised change may be unrepaired',
  async (t, url) => {
    const { name, one, store, time, watch } = await askedFixture(t, url);
    t.equal(one.isComplete, true);
    store.records.delete(name);
    watch.notice(name);
    t.equal(one.isComplete, false, 'an invalidation notice is unprocessed');
    const during: boolean[] = [];
    watch.onCompared = () => void during.push(one.isComplete);
    time.advance(1_000);
    await one.run();
    t.ok(during.length > 0);
    t.notOk(during.includes(true), 'the store is not complete while the notice is being processed');
    t.equal(one.isComplete, true);
    watch.lose();
    t.equal(one.isComplete, false, 'invalidation notices were lost');
    for (let run = 0; run < 100 && !one.isComplete; run += 1) {
      time.advance(1_000);
      await one.run();
    }
    t.equal(one.isComplete, true, 'all records have been compared since the loss');
  },
);

// A registry of an earlier release published a change, and crashed before it recorded the publication.
onEachDatabase(
  'a registry that takes over with support for record requests reverts no published change',
  async (t, url) => {
    const { database, context, key, one, projection, store } = await askedFixture(t, url);
    const { asks, ...earlier } = store.meta as { asks?: boolean; generation: string };
    t.equal(asks, true);
    store.meta = earlier as typeof store.meta;
    await one.end();
    await revokeKey(context, registryAuthor, key.keyId);
    const [change] = await database.selectFrom('outbox').selectAll().execute();
    [store.revision, store.change] = [change?.revision ?? 0, change?.change ?? null];
    const completed: number[] = [];
    const complete = store.complete.bind(store);
    store.complete = (meta, position) => {
      completed.push(position.revision);
      return complete(meta, position);
    };
    const next = projection('next');
    await next.run();
    t.equal(store.revision, change?.revision);
    await next.run();
    t.match(store.meta, { asks: true, generation: earlier.generation });
    t.same(completed, [change?.revision]);
  },
);
