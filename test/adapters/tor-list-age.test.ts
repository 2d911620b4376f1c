import { utimesSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { TestWorld, content, hour, minute } from './tor-maintenance-fixture.js';

const url = 'https://exits.example/list';
const block = (address: string, moment: string): string =>
  `ExitNode ${'A'.repeat(40)}\nPublished 2025-12-30 01:00:00\nLastStatus ${moment}\nExitAddress ${address} 2025-12-30 02:00:00\n`;

t.test('a list is as old as the newest date in it, however recent its response', async (t) => {
  const world = new TestWorld();
  const two = block('198.51.100.1', '2025-12-31 20:00:00') + block('198.51.100.2', '2025-12-31 21:00:00');
  const lastModified = 'Thu, 01 Jan 2026 00:00:00 GMT';
  world.responses.set(url, content(two, { lastModified }));
  const { exits } = world.open(t.testdir(), { from: [url] });
  t.equal(await exits.refreshNow(false), true);
  const status = exits.status();
  t.match(status, { available: true, ageSeconds: 3 * 3600 });
  t.match(status.sources, [{ confirmedAt: '2026-01-01T00:00:00.000Z', datedAt: '2025-12-31T21:00:00.000Z' }]);
  t.equal(status.sources[0]?.datedBy, 'list');
  world.responses.set(url, 'unchanged');
  world.now += hour;
  await exits.refreshNow(false);
  t.equal(exits.status().ageSeconds, 4 * 3600, 'a 304 does not make it younger');
  await exits.close();
});

t.test("the date comes from Onionoo's details, or from the server", async (t) => {
  const world = new TestWorld();
  const relay = { flags: ['Exit'], or_addresses: ['198.51.100.1:9001'] };
  const details = JSON.stringify({ version: '8.0', relays_published: '2025-12-31 23:00:00', relays: [relay] });
  const plain = 'https://plain.example/';
  world.responses.set(url, content(details));
  world.responses.set(plain, content(['198.51.100.2'], { lastModified: 'Wed, 31 Dec 2025 22:00:00 GMT' }));
  const { exits } = world.open(t.testdir(), { from: [url, plain] });
  await exits.refreshNow(false);
  t.match(exits.status().sources, [
    { datedAt: '2025-12-31T23:00:00.000Z', datedBy: 'list', ageSeconds: 3600 },
    { datedAt: '2025-12-31T22:00:00.000Z', datedBy: 'server', ageSeconds: 7200 },
  ]);
  t.equal(exits.status().ageSeconds, 3600, 'the list in use is as old as its youngest part');
  await exits.close();
});

t.test('a list dated before maxAgeHours is not used, even if it was just read', async (t) => {
  const world = new TestWorld();
  const { exits } = world.open(t.testdir(), { from: [url] });
  for (const old of [
    content(block('198.51.100.1', '2024-02-27 00:00:00').replaceAll('2025-12-30', '2024-02-26')),
    content(['198.51.100.1'], { lastModified: 'Tue, 27 Feb 2024 00:00:00 GMT' }),
  ]) {
    world.responses.set(url, old);
    await exits.refreshNow(false);
    t.match(exits.status(), { available: false, ageSeconds: (world.now - Date.parse('2024-02-27')) / 1000 });
    t.match(
      exits.unavailableReason(),
      /^the list is older than torExits\.maxAgeHours \(its date is 2024-02-27T00:00:00\.000Z\)$/,
    );
  }
  world.responses.set(url, content(['198.51.100.1'], { lastModified: 'no date' }));
  await exits.refreshNow(false);
  t.equal(exits.unavailableReason(), null, 'a list without a date is as old as its last confirmation');
  t.match(exits.status(), { ageSeconds: 0, sources: [{ datedAt: null, datedBy: null }] });
  await exits.close();
});

t.test("a file's modification time ages a list without dates and warns, but makes no gateway unready", async (t) => {
  const world = new TestWorld();
  const folder = t.testdir();
  const file = path.join(folder, 'exits.txt');
  writeFileSync(file, '198.51.100.1\n');
  utimesSync(file, new Date('2024-02-27'), new Date('2024-02-27'));
  const { exits } = world.open(folder, { from: [file] });
  await exits.tick();
  t.match(exits.status(), { available: true, sources: [{ datedAt: '2024-02-27T00:00:00.000Z', datedBy: 'file' }] });
  t.equal(exits.status().ageSeconds, (world.now - Date.parse('2024-02-27')) / 1000);
  t.equal(exits.unavailableReason(), null);
  t.match(
    exits.ageWarning(),
    /last written at 2024-02-27T00:00:00\.000Z, more than torExits\.maxAgeHours ago: replace the file/,
  );
  utimesSync(file, new Date(world.now), new Date(world.now));
  await exits.tick();
  t.equal(exits.ageWarning(), null);
  t.equal(exits.status().ageSeconds, 0);
  await exits.close();
});

t.test('a future or invalid date makes no list younger', async (t) => {
  const world = new TestWorld();
  world.responses.set(url, content(block('198.51.100.1', '2031-01-01 00:00:00')));
  const { exits } = world.open(t.testdir(), { from: [url] });
  await exits.refreshNow(false);
  world.now += 10 * minute;
  t.equal(exits.status().ageSeconds, 600);
  world.responses.set(url, content(block('198.51.100.1', '2025-99-99 00:00:00')));
  await exits.refreshNow(false);
  t.match(exits.status().sources, [{ datedAt: '2025-12-30T02:00:00.000Z' }]);
  await exits.close();
});

t.test('a record of a release without dates is accepted, and one with dates passes them on', async (t) => {
  const world = new TestWorld();
  const response = content(block('198.51.100.1', '2025-12-31 22:00:00'));
  world.responses.set(url, response);
  const first = world.open(t.testdir(), { from: [url], shared: world.store });
  await first.exits.refreshNow(false);
  await first.exits.close();
  const second = world.open(t.testdir({ second: '' }), { from: [url], shared: world.store });
  await second.exits.load();
  t.match(second.exits.status(), { ageSeconds: 7200, sources: [{ datedBy: 'list' }] });
  await second.exits.close();
  const record = world.store.record ?? '';
  world.store.record = record.replaceAll(/,?"dated(?:At|By)":"[^"]*"/g, '');
  t.not(world.store.record, record);
  const third = world.open(t.testdir({ third: '' }), { from: [url], shared: world.store });
  await third.exits.load();
  t.match(third.exits.status(), { available: true, ageSeconds: 0, sources: [{ datedAt: null }] });
  await third.exits.close();
});
