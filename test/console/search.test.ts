import { onEachDatabase } from '../database/each-database.js';
import { addressCount, keyUsage, merchantUsage, refusal, usageBatch } from '../registry/usage-fixture.js';
import { UsageBatches } from '../../src/registry/usage/usage-batches.js';
import { batchText } from '../usage/batch-text.js';
import { consoleFixture } from './console-fixture.js';

interface Found {
  readonly kind: string;
  readonly id: string;
  readonly name: string | null;
  readonly merchantId: string | null;
}

onEachDatabase('a search finds what a name, an id or an address stands for', async (t, url) => {
  const fixture = await consoleFixture(t, url);
  const { ask, createMerchant, createKey, createPerson, signIn, database, time, call } = fixture;
  const [own, other] = [await createMerchant({ name: 'Till & Sons' }), await createMerchant({ name: 'Other' })];
  const key = await createKey(own.id, { label: 'till 7' });
  const person = await createPerson('sam', ['support']);
  const member = await createPerson('ada', ['merchant-admin'], other.id);
  const batches = new UsageBatches({ database, clock: time, addresses: 'full' });
  const seen = [addressCount('192.0.2.9', 3), addressCount('2001:db8::9', 1)];
  const text = await batchText(
    usageBatch({
      keys: [keyUsage(key.keyId, { merchantId: own.id, addresses: seen })],
      merchants: [merchantUsage(own.id, { refusals: [refusal('req-41')] })],
      unknown: { codes: [], addresses: [addressCount('198.51.100.1', 0, { refused: 2 })] },
    }),
  );
  t.same(JSON.parse(await batches.add(text)), { sequence: 1 });
  const coarse = new UsageBatches({ database, clock: time, addresses: 'network' });
  const seenLater = [addressCount('203.0.113.7', 2), addressCount('192.0.2.9', 1)];
  const later = usageBatch({
    process: 'p-2',
    keys: [keyUsage(key.keyId, { merchantId: own.id, addresses: seenLater })],
  });
  t.same(JSON.parse(await coarse.add(await batchText(later))), { sequence: 1 });

  const session = await signIn(person.token);
  const find = async (q: string, by = session): Promise<Found[]> =>
    (await ask<Found[]>('GET', `/console/api/search?q=${encodeURIComponent(q)}`, { session: by })).body.data;
  const merchant = { kind: 'merchant', id: own.id, name: 'Till & Sons', merchantId: own.id };
  t.same(await find('till &'), [merchant], 'part of a name, in any case');
  t.same(await find(`  ${own.id} `), [merchant]);
  t.same(await find(key.keyId), [{ kind: 'key', id: key.keyId, name: 'till 7', merchantId: own.id }]);
  t.same(await find('req-41'), [{ kind: 'refusal', id: 'req-41', name: 'ip_not_allowed', merchantId: own.id }]);
  const address = { kind: 'address', id: '2001:db8::9', name: null, merchantId: own.id };
  t.same(await find('2001:0DB8:0::9'), [address], 'an address in any form');
  t.same(await find('203.0.113.7'), [{ ...address, id: '203.0.113.0/24' }], 'an address stored as its network');
  t.match(await find('192.0.2.9'), [{ id: '192.0.2.0/24' }, { id: '192.0.2.9' }], 'stored in both forms');
  t.same(await find('198.51.100.1'), [], 'an address of unknown keys belongs to no merchant');
  t.same(await find('%'), [], 'no character is a wildcard');
  t.same(await find('sam'), [], 'support may not read administrators');
  const [created] = (await call<{ requestId: string }[]>('GET', '/events?action=key.created')).body.data;
  t.same(await find(created?.requestId ?? ''), [
    { kind: 'event', id: created?.requestId, name: 'key.created', merchantId: own.id },
  ]);
  const owner = await signIn((await createPerson('olu', ['owner'])).token);
  t.match(await find('sam', owner), [{ kind: 'administrator', id: person.id, name: 'sam' }]);

  const foreign = await signIn(member.token);
  for (const q of ['Till', own.id, key.keyId, 'req-41', '192.0.2.9', '203.0.113.7', created?.requestId ?? ''])
    t.same(await find(q, foreign), [], `a member of another merchant does not find ${q}`);
  t.match(await find('Other', foreign), [{ kind: 'merchant', id: other.id }]);

  const pasted = await ask('GET', `/console/api/search?q=${key.key}`, { session });
  t.equal(pasted.status, 422, 'a key is no text to search for');
  t.notMatch(pasted.text, key.key);
  for (const q of ['', ' ', 'x'.repeat(101)])
    t.equal((await ask('GET', `/console/api/search?q=${q}`, { session })).status, 422);
});
