import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat, symlink, truncate, unlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import t from 'tap';
import { exitSourceOf, type SourceContent } from '../../src/adapters/tor/exit-source.js';
import { RefreshSchedule } from '../../src/adapters/tor/source-reader.js';
import { compileIpRanges } from '../../src/policy/ip-ranges.js';
import { address } from '../policy/fixtures.js';
import {
  type SourceResponse,
  content,
  hour,
  type Maintained,
  manyExits,
  minute,
  TestWorld,
  unreachable,
} from './tor-maintenance-fixture.js';

const a = 'https://a.test/list';
const b = 'https://b.test/list';

/** Whether each of these addresses is an exit, as one character: 1, 0, or ? if unknown. */
function says({ exits }: Maintained, ...texts: string[]): string {
  return texts.map((text) => ({ true: '1', false: '0', null: '?' })[String(exits.has(address(text)))]).join('');
}

t.test('without a list every address is unknown, and with "allow" no address is an exit', async (t) => {
  const world = new TestWorld();
  const strict = world.open(t.testdir(), { from: [a] });
  await strict.exits.load();
  t.equal(says(strict, '198.51.100.9'), '?');
  t.equal(strict.exits.unavailableReason(), 'no Tor exit list is loaded yet');
  t.equal(strict.exits.digest, null);
  t.equal(world.fetched.length, 0, 'loading contacts no server');
  const lax = world.open(t.testdir(), { from: [a], denyWhenUnavailable: false });
  await lax.exits.load();
  t.equal(says(lax, '198.51.100.9'), '0');
  t.equal(lax.exits.unavailableReason(), null);
  t.equal(lax.exits.status().available, false, 'the status shows operators that no list is available');
});

t.test('several sources are joined, and the status shows each', async (t) => {
  const world = new TestWorld();
  world.responses.set(a, content(['198.51.100.9', '203.0.113.1']));
  world.responses.set(b, content(['203.0.113.1', '2001:db8::5']));
  const list = world.open(t.testdir(), { from: [a, b] });
  await list.exits.tick();
  t.equal(says(list, '198.51.100.9', '203.0.113.1', '2001:DB8::5', '192.0.2.1'), '1110');
  const digest = createHash('sha256').update('198.51.100.9\n203.0.113.1\n2001:db8::5\n').digest('hex');
  t.equal(list.exits.digest, digest);
  world.now += 90_000;
  t.match(list.exits.status(), {
    available: true,
    digest,
    size: 3,
    ageSeconds: 90,
    sources: [
      { source: a, confirmedAt: '2026-01-01T00:00:00.000Z', ageSeconds: 90, size: 2, leftOut: 0, problem: null },
      { source: b, size: 2, problem: null },
    ],
  });
  t.same(
    list.exits.status().sources.map(({ refusals }) => refusals),
    [{}, {}],
  );
});

t.test('after any failure of a source its previous list stays, and the reason is counted and reported', async (t) => {
  const exits = manyExits(40);
  const rows: [reason: string, SourceResponse][] = [
    ['empty', content('# nothing\n')],
    ['html', content('<html><body>198.51.100.1</body></html>')],
    ['malformed', content([...exits, 'x'])],
    ['malformed', content('{"relays":[')],
    ['shrunken', content(exits.slice(0, 19))],
    ['names_trusted_proxy', content([...exits, '192.0.2.200'])],
    ['unreachable', unreachable],
    ['unreadable', new Error('nobody foresaw this')],
  ];
  for (const [reason, response] of rows) {
    const world = new TestWorld();
    world.responses.set(a, content(exits));
    world.responses.set(b, content(['203.0.113.1']));
    const rules = { allowReserved: true, trustedProxies: compileIpRanges(['192.0.2.192/26']) };
    const list = world.open(t.testdir(), { from: [a, b], rules });
    await list.exits.tick();
    const { digest } = list.exits;
    world.responses.set(a, response);
    world.responses.set(b, content(['203.0.113.1', '203.0.113.2']));
    world.now += 2 * hour;
    await list.exits.tick();
    t.equal(
      says(list, '198.51.100.0', '198.51.100.39', '203.0.113.2'),
      '111',
      `${reason}: the other source still works`,
    );
    t.same(list.refused, [`${a} ${reason}`]);
    t.match(list.exits.status().sources[0], { size: 40, ageSeconds: 7200, refusals: { [reason]: 1 } });
    t.ok((list.exits.status().sources[0]?.problem ?? '').length > 10, 'the status has the reason');
    t.equal(list.exits.unavailableReason(), null);
    t.not(list.exits.digest, digest);
    world.responses.set(a, content([...exits, '192.0.2.1']));
    world.now += hour;
    await list.exits.tick();
    t.equal(says(list, '192.0.2.1'), '1', 'the next valid list replaces it');
    t.equal(list.exits.status().sources[0]?.problem, null);
  }
});

t.test(
  'a list is fetched conditionally, and an unchanged one is confirmed without replacing the list in use',
  async (t) => {
    const world = new TestWorld();
    world.responses.set(a, content(['198.51.100.9'], { etag: '"1"' }));
    const list = world.open(t.testdir(), { from: [a] });
    await list.exits.tick();
    world.responses.set(a, 'unchanged');
    world.now += 2 * hour;
    await list.exits.tick();
    t.same(world.fetched, [
      { url: a, etag: null },
      { url: a, etag: '"1"' },
    ]);
    t.equal(list.exits.status().ageSeconds, 0);
    t.equal(list.swaps(), 1);
    world.now += 2 * hour;
    await list.exits.tick();
    t.equal(world.fetched[2]?.etag, '"1"', 'its validator is stored');
  },
);

/** The seconds between fetch attempts within this time. */
async function gapsOf(world: TestWorld, list: Maintained, milliseconds: number): Promise<number[]> {
  const attempts: number[] = [];
  for (const end = world.now + milliseconds; world.now < end; world.now += 10_000) {
    const before = world.fetched.length;
    await list.exits.tick();
    if (world.fetched.length > before) attempts.push(world.now / 1000);
  }
  return attempts.slice(1).map((at, index) => at - (attempts[index] ?? 0));
}

t.test('while no list is in use, a source is tried each minute', async (t) => {
  const world = new TestWorld();
  const list = world.open(t.testdir(), { from: [a] });
  t.same(await gapsOf(world, list, 6 * minute), [30, 60, 60, 60, 60, 60]);
  world.responses.set(b, content(['198.51.100.9']));
  const other = world.open(t.testdir(), { from: [a, b] });
  t.same(await gapsOf(world, other, 5 * minute), [30, 60, 120], 'but not while another source has one');
  world.now += 49 * hour;
  world.responses.set(b, unreachable);
  t.ok(
    (await gapsOf(world, other, 30 * minute)).every((gap) => gap <= 60),
    'and again when that one is too old',
  );
});

t.test('a source is read again after its interval; after a failure earlier, then with growing backoff', async (t) => {
  const world = new TestWorld();
  world.responses.set(a, content(['198.51.100.9']));
  const list = world.open(t.testdir(), { from: [a] });
  await list.exits.tick();
  world.responses.set(a, unreachable);
  world.now += hour;
  const start = world.now;
  t.same(
    await gapsOf(world, list, 3 * hour),
    [30, 60, 120, 240, 480, 960, 1920, 3600],
    'seconds between failing attempts',
  );
  world.responses.set(a, content(['198.51.100.9']));
  world.now = start + 10 * hour;
  await list.exits.tick();
  const before = world.fetched.length;
  world.now += hour - 1000;
  await list.exits.tick();
  t.equal(world.fetched.length, before);
  world.now += 1000;
  await list.exits.tick();
  t.equal(world.fetched.length, before + 1);
});

t.test('the time until the next attempt has a jitter of a tenth, drawn once per attempt', (t) => {
  const source = exitSourceOf(a, false);
  const at = Date.parse('2026-01-01T00:00:00.000Z');
  const state = { attemptedAt: '2026-01-01T00:00:00.000Z', failures: 0, problem: null, list: null };
  const dueAfter = (minutes: number, random: number): boolean =>
    new RefreshSchedule({ refreshMilliseconds: hour, random: () => random }).isDue(
      source,
      state,
      at + minutes * minute,
      true,
    );
  t.same([dueAfter(53.9, 0), dueAfter(54, 0)], [false, true]);
  t.same([dueAfter(65.9, 0.999999), dueAfter(66, 0.999999)], [false, true]);
  let draws = 0;
  const random = (): number => (draws += 1) * 0.1;
  const schedule = new RefreshSchedule({ refreshMilliseconds: hour, random });
  for (let check = 0; check < 50; check += 1) schedule.isDue(source, state, at + minute, true);
  t.equal(draws, 1);
  t.ok(
    schedule.isDue(source, state, at - 2 * hour, true),
    'an attempt dated in the future, after a clock was set back, does not count',
  );
  t.end();
});

t.test('a list that no source has confirmed for too long is no longer used', async (t) => {
  const world = new TestWorld();
  world.responses.set(a, content(['198.51.100.9']));
  world.responses.set(b, content(['203.0.113.1']));
  const list = world.open(t.testdir(), { from: [a, b] });
  await list.exits.tick();
  world.responses.set(a, unreachable);
  world.now += 47 * hour;
  await list.exits.tick();
  t.equal(says(list, '198.51.100.9', '203.0.113.1'), '11');
  world.responses.set(b, unreachable);
  world.now += 2 * hour;
  await list.exits.tick();
  t.equal(says(list, '198.51.100.9', '203.0.113.1'), '01', 'the older source no longer counts; the younger one does');
  world.now += 46 * hour;
  t.equal(says(list, '203.0.113.1'), '1');
  world.now += 1;
  t.equal(says(list, '203.0.113.1'), '?', 'to the millisecond, without a tick');
  t.equal(list.exits.unavailableReason(), 'the list is older than torExits.maxAgeHours');
  t.equal(list.exits.digest, null);
  t.equal(list.exits.status().available, false);
  world.responses.set(b, content(['203.0.113.1']));
  await list.exits.tick();
  t.equal(says(list, '198.51.100.9', '203.0.113.1'), '01');
});

t.test('a replaced list file is read on the next tick, in whatever way it is replaced', async (t) => {
  const directory = t.testdir({ list: '198.51.100.1\n', old: { list: '192.0.2.1\n' }, new: { list: '192.0.2.22\n' } });
  const file = path.join(directory, 'list');
  await symlink('old', path.join(directory, 'current'));
  const world = new TestWorld();
  const list = world.open(directory, { from: [file, path.join(directory, 'current', 'list')] });
  await list.exits.load();
  t.equal(says(list, '198.51.100.1', '192.0.2.1'), '11', 'at the start');
  await writeFile(`${file}.new`, '198.51.100.22\n');
  await rename(`${file}.new`, file);
  await list.exits.tick();
  t.equal(says(list, '198.51.100.1', '198.51.100.22', '192.0.2.1'), '011', 'after a rename');
  await writeFile(file, '198.51.100.3\n');
  await list.exits.tick();
  t.equal(says(list, '198.51.100.22', '198.51.100.3'), '01', 'after a write');
  await symlink('new', path.join(directory, 'next'));
  await rename(path.join(directory, 'next'), path.join(directory, 'current'));
  await list.exits.tick();
  t.equal(says(list, '192.0.2.1', '192.0.2.22'), '01', 'after the swap of a symbolic link above it');
  t.same(list.refused, []);
  const swaps = list.swaps();
  await list.exits.tick();
  t.equal(list.swaps(), swaps, 'only then');
});

t.test('an unusable list file leaves the previous list in use, and reports why', async (t) => {
  const rows: [reason: RegExp, make: (file: string) => Promise<void>][] = [
    [/unreadable$/, unlink],
    [
      /unreadable$/,
      async (file) => {
        await unlink(file);
        await mkdir(file);
      },
    ],
    [/html$/, (file) => writeFile(file, '<html></html>')],
    [/malformed$/, (file) => writeFile(file, '198.51.100.9\n198.51.1')],
    [/malformed$/, (file) => writeFile(file, Buffer.from([0x31, 0xff, 0xfe]))],
    [/empty$/, (file) => writeFile(file, '')],
    [/unreadable$/, (file) => truncate(file, 16 * 1024 * 1024 + 1)],
  ];
  for (const [reason, make] of rows) {
    const directory = t.testdir({ list: '198.51.100.7\n198.51.100.9\n' });
    const file = path.join(directory, 'list');
    const list = new TestWorld().open(directory, { from: [file] });
    await list.exits.load();
    await make(file);
    await list.exits.tick();
    await list.exits.tick();
    t.equal(list.refused.length, 1, 'reported once');
    t.match(list.refused[0], reason);
    t.equal(says(list, '198.51.100.7'), '1');
  }
});

t.test('without its file a gateway is not ready, and becomes ready when the file exists', async (t) => {
  const directory = t.testdir();
  const file = path.join(directory, 'list');
  const world = new TestWorld();
  const list = world.open(directory, { from: [file] });
  await list.exits.load();
  t.equal(list.exits.unavailableReason(), 'no Tor exit list is loaded yet');
  t.match(list.exits.status().sources[0]?.problem, /there is no such file/);
  await writeFile(file, '198.51.100.9\n');
  await list.exits.tick();
  t.equal(says(list, '198.51.100.9'), '1');
  world.now += 47 * hour;
  await list.exits.tick();
  t.equal(list.exits.status().ageSeconds, 0, 'a readable file is confirmed by each read');
});

t.test('the snapshot on disk gives the last valid list to the next start, in any order of failures', async (t) => {
  const directory = t.testdir();
  const world = new TestWorld();
  world.responses.set(a, content(['198.51.100.9', '2001:db8::5'], { etag: '"1"' }));
  const first = world.open(directory, { from: [a] });
  await first.exits.tick();
  t.same(await readdir(directory), ['snapshot.json'], 'no temporary file remains');
  world.responses.set(a, unreachable);
  world.now += hour;
  const second = world.open(directory, { from: [a] });
  await second.exits.load();
  t.equal(says(second, '198.51.100.9', '2001:db8::5', '192.0.2.1'), '110');
  t.equal(second.exits.digest, first.exits.digest);
  t.equal(second.exits.status().ageSeconds, 3600);
  await second.exits.tick();
  t.equal(says(second, '198.51.100.9'), '1');
  t.equal(world.fetched.at(-1)?.etag, '"1"', 'with its validator');
  world.now += 48 * hour;
  const third = world.open(directory, { from: [a] });
  await third.exits.load();
  t.equal(says(third, '198.51.100.9'), '?', 'unless it is too old by then');
  const other = world.open(directory, { from: [b] });
  await other.exits.load();
  t.equal(says(other, '198.51.100.9'), '?', 'or belongs to another source');
});

t.test('a damaged or forged snapshot is not used', async (t) => {
  const world = new TestWorld();
  world.responses.set(a, content(['198.51.100.9', '203.0.113.1']));
  const made = t.testdir();
  await world.open(made, { from: [a] }).exits.tick();
  const good = await readFile(path.join(made, 'snapshot.json'), 'utf8');
  t.match(good, '"198.51.100.9","203.0.113.1"');
  const ahead = '"confirmedAt":"2026-01-03T00:00:00.000Z"';
  const rows: [string, string][] = [
    ['an address added', good.replace('"203.0.113.1"', '"203.0.113.1","192.0.2.1"')],
    ['an address changed', good.replace('"203.0.113.1"', '"203.0.113.2"')],
    ['no address', good.replace('"203.0.113.1"', '"example"')],
    ['an address removed', good.replace('"198.51.100.9",', '')],
    ['half of it', good.slice(0, good.length / 2)],
    ['another version', good.replace('"version":1', '"version":2')],
    ['from the future', good.replace(/"confirmedAt":"[^"]*"/, ahead)],
    ['not JSON', 'x'],
    ['nothing', ''],
    ['something else', '[]'],
  ];
  for (const [what, text] of rows) {
    t.not(text, good, what);
    const directory = t.testdir({ 'snapshot.json': text });
    const list = world.open(directory, { from: [a] });
    await list.exits.load();
    t.equal(says(list, '198.51.100.9', '192.0.2.1'), '??', what);
    const isDue = what !== 'from the future'; // such a list becomes valid once the clock is corrected
    t.equal(list.problems.length + list.refused.length, isDue ? 1 : 0, `${what}: reported to operators`);
  }
  const rules = { allowReserved: true, trustedProxies: compileIpRanges(['203.0.113.0/24']) };
  const list = world.open(t.testdir({ 'snapshot.json': good }), { from: [a], rules });
  await list.exits.load();
  t.same(list.refused, [`${a} names_trusted_proxy`], 'the current rules apply');
  t.same(list.exits.status().sources[0]?.refusals, { names_trusted_proxy: 1 }, 'it is counted like other refusals');
  t.equal(says(list, '198.51.100.9'), '?');
});

t.test('a snapshot that cannot be written is a problem, and the list is still used', async (t) => {
  const directory = t.testdir({ file: '' });
  const world = new TestWorld();
  world.responses.set(a, content(['198.51.100.9']));
  const list = world.open(path.join(directory, 'file'), { from: [a] });
  await list.exits.tick();
  await list.exits.tick();
  t.same(list.problems, ['the snapshot of the Tor exit list cannot be written'], 'reported once');
  t.equal(says(list, '198.51.100.9'), '1');
  await rm(path.join(directory, 'file'));
  await list.exits.tick();
  t.match(
    await readFile(path.join(directory, 'file', 'snapshot.json'), 'utf8'),
    '198.51.100.9',
    'the write is retried',
  );
  t.same(list.recovered, ['the snapshot of the Tor exit list can be written again'], 'the recovery is reported too');
  t.equal(world.fetched.length, 1, 'without a new fetch');
  const { ino } = await stat(path.join(directory, 'file', 'snapshot.json'));
  await list.exits.tick();
  t.equal(
    (await stat(path.join(directory, 'file', 'snapshot.json'))).ino,
    ino,
    'an unchanged snapshot is not rewritten',
  );
});

t.test('a snapshot written by another process is loaded', async (t) => {
  const directory = t.testdir();
  const world = new TestWorld();
  world.responses.set(a, content(manyExits(40)));
  const gateway = world.open(directory, { from: [a] });
  await gateway.exits.tick();
  world.now += minute;
  world.responses.set(a, content(['203.0.113.1']));
  const command = world.open(directory, { from: [a] });
  await command.exits.load();
  t.ok(await command.exits.refreshNow(false));
  t.match(
    command.exits.status().sources[0]?.problem,
    /--accept-smaller/,
    'the refusal names the option that accepts it',
  );
  t.ok(await command.exits.refreshNow(true));
  await gateway.exits.tick();
  t.equal(says(gateway, '203.0.113.1', '198.51.100.1'), '10');
});

t.test('running and restarted gateways take a much smaller file that an operator accepted', async (t) => {
  for (const shared of [true, false]) {
    const directory = t.testdir({ list: `${manyExits(40).join('\n')}\n` });
    const file = path.join(directory, 'list');
    const world = new TestWorld();
    const options = { from: [file], ...(shared ? { shared: world.store } : {}) };
    const [own, others] = [
      path.join(directory, 'own'),
      shared ? path.join(directory, 'others') : path.join(directory, 'own'),
    ];
    const gateway = world.open(own, options);
    await gateway.exits.tick();
    await writeFile(file, '203.0.113.1\n');
    for (let count = 0; count < 6; count += 1) {
      world.now += hour;
      await gateway.exits.tick();
    }
    t.equal(says(gateway, '203.0.113.1', '198.51.100.1'), '01', 'nobody has accepted the file yet');
    const command = world.open(others, options);
    await command.exits.load();
    t.ok(await command.exits.refreshNow(true));
    for (let count = 0; count < 4; count += 1) {
      world.now += 15_000;
      await gateway.exits.tick();
    }
    t.equal(says(gateway, '203.0.113.1', '198.51.100.1'), '10');
    const restarted = world.open(own, options);
    await restarted.exits.load();
    t.equal(says(restarted, '203.0.113.1', '198.51.100.1'), '10');
    await writeFile(file, '192.0.2.1\n');
    world.now += hour;
    await gateway.exits.tick();
    t.equal(says(gateway, '192.0.2.1', '203.0.113.1'), '10', 'below ten addresses nothing shrinks');
  }
});

t.test('a gateway that starts without a list does not make the others take a much smaller file', async (t) => {
  const directory = t.testdir({ list: `${manyExits(40).join('\n')}\n` });
  const file = path.join(directory, 'list');
  const world = new TestWorld();
  const [own, started, other] = ['own', 'started', 'other'].map((name) =>
    world.open(path.join(directory, name), { from: [file], shared: world.store }),
  ) as [Maintained, Maintained, Maintained];
  const tickForAMinute = async ({ exits }: Maintained): Promise<void> => {
    for (let count = 0; count < 6; count += 1) {
      world.now += 10_000;
      await exits.tick();
    }
  };
  await own.exits.tick();
  await other.exits.tick();
  await writeFile(file, '203.0.113.1\n');
  world.now += 1_000;
  await own.exits.tick();
  t.same(own.refused, [`${file} shrunken`]);

  world.store.up = false;
  await started.exits.load();
  world.store.up = true;
  world.store.record = null;
  await started.exits.tick();
  t.match(world.store.record, '"addresses":["203.0.113.1"]');
  await tickForAMinute(own);
  t.equal(says(own, '198.51.100.0', '198.51.100.39', '203.0.113.1'), '110', 'no operator has accepted the file');

  const command = world.open(path.join(directory, 'command'), { from: [file], shared: world.store });
  await command.exits.load();
  t.ok(await command.exits.refreshNow(true));
  await tickForAMinute(own);
  t.equal(says(own, '198.51.100.0', '203.0.113.1'), '01', 'an operator has accepted the file');
  t.ok(await started.exits.refreshNow(false));
  await tickForAMinute(other);
  t.equal(says(other, '198.51.100.0', '203.0.113.1'), '01', 'the records of other gateways keep the acceptance');
});

t.test('a gateway that starts without a list does not make the others take a much smaller list of a URL', async (t) => {
  const directory = t.testdir();
  const world = new TestWorld();
  const [own, started, command] = ['own', 'started', 'command'].map((name) =>
    world.open(path.join(directory, name), { from: [a], shared: world.store }),
  ) as [Maintained, Maintained, Maintained];
  const tickForAMinute = async (): Promise<void> => {
    for (let count = 0; count < 6; count += 1) {
      world.now += 10_000;
      await own.exits.tick();
    }
  };
  world.responses.set(a, content(manyExits(40)));
  await own.exits.tick();
  world.responses.set(a, content(['203.0.113.1'], { etag: '"2"' }));
  world.now += 1_000;
  world.store.record = null;
  await started.exits.load();
  await started.exits.tick();
  t.match(world.store.record, '"addresses":["203.0.113.1"]');
  await tickForAMinute();
  t.equal(says(own, '198.51.100.0', '198.51.100.39', '203.0.113.1'), '110', 'no operator has accepted the list');
  t.same(own.refused, [`${a} shrunken`], 'it is reported once');
  t.same(own.exits.status().sources[0]?.refusals, { shrunken: 1 });

  world.responses.set(a, 'unchanged');
  await command.exits.load();
  t.ok(await command.exits.refreshNow(true));
  t.equal(world.fetched.at(-1)?.etag, '"2"', 'the command has the list of the record, which the source confirms');
  await tickForAMinute();
  t.equal(says(own, '198.51.100.0', '203.0.113.1'), '01', 'an operator has accepted the list');
});

t.test('a gateway that was away compares the list of the others with its own, as it does after a fetch', async (t) => {
  const directory = t.testdir();
  const world = new TestWorld();
  const [away, other, started] = ['away', 'other', 'started'].map((name) =>
    world.open(path.join(directory, name), { from: [a], shared: world.store }),
  ) as [Maintained, Maintained, Maintained];
  world.responses.set(a, content(manyExits(40)));
  await away.exits.tick();
  for (const count of [25, 15]) {
    await other.exits.tick();
    world.responses.set(a, content(manyExits(count)));
    world.now += hour;
    await other.exits.tick();
    t.equal(other.exits.status().size, count);
  }
  await away.exits.tick();
  t.same(away.refused, [`${a} shrunken`, `${a} shrunken`], 'the list of the other one, then that of its own fetch');
  t.equal(away.exits.status().size, 40);
  await started.exits.load();
  t.equal(started.exits.status().size, 40, 'a gateway that starts now takes the longer list');
  world.responses.set(a, content(manyExits(41)));
  world.now += minute;
  await away.exits.tick();
  world.now += 10_000;
  await other.exits.tick();
  t.same([away.exits.status().size, other.exits.status().size], [41, 41], 'the next complete list is for all');
});

t.test('the acceptance of a much smaller file ends with the next list', async (t) => {
  const directory = t.testdir({ list: `${manyExits(40).join('\n')}\n` });
  const file = path.join(directory, 'list');
  const world = new TestWorld();
  const { exits, refused } = world.open(directory, { from: [file] });
  await exits.tick();
  await writeFile(file, '203.0.113.1\n');
  t.ok(await exits.refreshNow(true));
  await writeFile(file, `${manyExits(50).join('\n')}\n`);
  await exits.tick();
  t.equal(exits.status().size, 50);
  await writeFile(file, '203.0.113.1\n');
  await exits.tick();
  t.equal(exits.status().size, 50, 'the same small file is rejected later');
  t.same(refused, [`${file} shrunken`]);
});

t.test('one gateway of a cluster fetches, and the others load its list on their next tick', async (t) => {
  const world = new TestWorld();
  world.responses.set(a, content(['198.51.100.9']));
  const gateways = [1, 2, 3].map(() => world.open(t.testdir(), { from: [a], shared: world.store }));
  await Promise.all(gateways.map(({ exits }) => exits.load()));
  await Promise.all(gateways.map(({ exits }) => exits.tick()));
  world.now += 10_000;
  for (const { exits } of gateways) await exits.tick();
  t.equal(world.fetched.length, 1);
  t.same(
    gateways.map((one) => says(one, '198.51.100.9', '192.0.2.1')),
    ['10', '10', '10'],
  );
  t.equal(new Set(gateways.map(({ exits }) => exits.digest)).size, 1);

  world.responses.set(a, content(['192.0.2.1']));
  world.now += 2 * hour;
  for (const { exits } of gateways) await exits.tick();
  t.equal(world.fetched.length, 2);
  t.same(
    gateways.map((one) => says(one, '198.51.100.9', '192.0.2.1')),
    ['01', '01', '01'],
  );

  world.responses.set(a, unreachable);
  world.now += 2 * hour;
  for (let round = 0; round < 3; round += 1) for (const { exits } of gateways) await exits.tick();
  t.equal(world.fetched.length, 3, 'not every gateway repeats a failure');
  t.ok(
    gateways.every(({ exits }) => (exits.status().sources[0]?.problem ?? '') !== ''),
    'all of them have the failure in their status',
  );
  world.now += 30_000;
  for (const { exits } of gateways) await exits.tick();
  t.equal(world.fetched.length, 4, 'one gateway retries');
});

t.test('a record that the key store has lost is published again, for gateways that start without a list', async (t) => {
  const directory = t.testdir();
  const file = path.join(directory, 'list');
  const exits = manyExits(40);
  for (const [kind, source] of [
    ['file', file],
    ['url', a],
  ] as const) {
    const world = new TestWorld();
    const options = { from: [source], shared: world.store };
    await writeFile(file, `${exits.join('\n')}\n`);
    world.responses.set(a, content(exits));
    const running = world.open(path.join(directory, kind), options);
    await running.exits.tick();
    await writeFile(file, '203.0.113.1\n');
    world.responses.set(a, content(['203.0.113.1']));
    world.store.record = null;
    world.now += 10_000;
    await running.exits.tick();
    const started = world.open(path.join(directory, `${kind}-started`), options);
    await started.exits.load();
    await started.exits.tick();
    t.equal(says(started, '198.51.100.0', '203.0.113.1'), '10', `${kind}: a truncated list is rejected`);
  }
});

t.test('a gateway without the claim does not fetch: another one has it, or the key store is down', async (t) => {
  const world = new TestWorld();
  world.responses.set(a, content(['198.51.100.9']));
  const list = world.open(t.testdir(), { from: [a], shared: world.store });
  world.store.claimed = true;
  await list.exits.tick();
  t.notOk(await list.exits.refreshNow(false));
  world.store.claimed = false;
  world.store.up = false;
  world.now += hour;
  await list.exits.tick();
  t.notOk(await list.exits.refreshNow(false));
  t.equal(world.fetched.length, 0);
  t.equal(says(list, '198.51.100.9'), '?');
  world.store.up = true;
  await list.exits.tick();
  t.equal(says(list, '198.51.100.9'), '1');
  world.store.up = false;
  world.now += hour;
  await list.exits.tick();
  t.equal(says(list, '198.51.100.9'), '1', 'the loaded list stays in use');
});

t.test('an outage of the key store is reported at its start and its end, not on each attempt', async (t) => {
  const world = new TestWorld();
  world.responses.set(a, content(['198.51.100.9']));
  const list = world.open(t.testdir(), { from: [a], shared: world.store });
  for (const up of [false, true, false, true]) {
    world.store.up = up;
    for (let attempt = 0; attempt < 4; attempt += 1) {
      world.now += minute;
      await list.exits.tick();
      if (!up) await list.exits.refreshNow(false);
    }
  }
  await list.exits.refreshNow(false);
  const problems = ['read from', 'written to'].map((how) => `the Tor exit list cannot be ${how} the key store`);
  t.same(list.problems, [...problems, ...problems]);
  const ends = ['read from', 'written to'].map((how) => `the Tor exit list can be ${how} the key store again`);
  t.same(list.recovered.slice(0, 3), [...ends, ends[0]]);
  t.equal(list.recovered.length, 4);
});

t.test(
  'a gateway with the claim first checks whether a fetch is still needed, and keeps lists of sources it does not read',
  async (t) => {
    const world = new TestWorld();
    world.responses.set(a, content(['198.51.100.9']));
    world.responses.set(b, content(['203.0.113.1']));
    const one = world.open(t.testdir(), { from: [a], shared: world.store });
    await one.exits.tick();
    const { record } = world.store;
    world.store.record = null;
    const late = world.open(t.testdir(), { from: [a], shared: world.store });
    world.store.onClaim = () => (world.store.record = record);
    await late.exits.tick();
    t.equal(world.fetched.length, 1, 'another gateway was faster');
    t.equal(says(late, '198.51.100.9'), '1');

    world.store.onClaim = () => undefined;
    const next = world.open(t.testdir(), { from: [b], shared: world.store });
    await next.exits.tick();
    world.now += 10_000;
    await one.exits.tick();
    await next.exits.tick();
    t.same(
      world.fetched.map(({ url }) => url),
      [a, b],
      'gateways with different configurations do not overwrite each other',
    );
    t.same([says(one, '198.51.100.9', '203.0.113.1'), says(next, '198.51.100.9', '203.0.113.1')], ['10', '01']);
    const restarted = world.open(t.testdir(), { from: [a], shared: world.store });
    await restarted.exits.tick();
    t.equal(says(restarted, '198.51.100.9'), '1', 'the record keeps lists that only one of them reads');
    t.equal(world.fetched.length, 2);
  },
);

t.test('a malformed record of the cluster is not used, and is replaced', async (t) => {
  const world = new TestWorld();
  world.responses.set(a, content(['198.51.100.9']));
  world.store.record = '{"version":1,"sources":"all"}';
  const list = world.open(t.testdir(), { from: [a], shared: world.store });
  await list.exits.tick();
  t.same(list.problems, ['the Tor exit list in the key store cannot be used']);
  t.equal(says(list, '198.51.100.9'), '1');
  t.match(JSON.parse(world.store.record), { version: 1, digest: list.exits.digest, size: 1, sources: [{ source: a }] });
  world.store.claimed = true;
  for (const record of ['{', '{', '[]', null, null]) {
    world.store.record = record;
    world.now += minute;
    await list.exits.tick();
  }
  t.equal(list.problems.length, 3, 'each is reported once, and a missing one is not a problem');
});

t.test('clocks of two gateways may differ by five minutes', async (t) => {
  const world = new TestWorld();
  world.responses.set(a, content(['198.51.100.9']));
  await world.open(t.testdir(), { from: [a], shared: world.store }).exits.tick();
  for (const [behind, expected] of [
    [4.9, '1'],
    [5.1, '?'],
  ] as const) {
    const clock = { now: () => world.now - behind * minute };
    const other = world.open(t.testdir(), { from: [a], shared: world.store, clock });
    await other.exits.load();
    t.equal(says(other, '198.51.100.9'), expected, `${behind} minutes`);
  }
});

t.test('the record keeps the list of a source that is no longer read for one day', async (t) => {
  const world = new TestWorld();
  world.responses.set(a, content(['198.51.100.9']));
  world.responses.set(b, content(['203.0.113.1']));
  await world.open(t.testdir(), { from: [a], shared: world.store }).exits.tick();
  const [first, second] = [1, 2].map(() => world.open(t.testdir(), { from: [b], shared: world.store }));
  const kept: string[][] = [];
  for (const [hours, gateway] of [
    [23.9, first],
    [0.2, first],
    [1, second],
  ] as const) {
    world.now += hours * hour;
    t.ok(await gateway?.exits.refreshNow(false));
    const { sources } = JSON.parse(world.store.record ?? '') as { sources: { source: string }[] };
    kept.push(sources.map(({ source }) => source));
  }
  t.same(kept, [[b, a], [b], [b]]);
});

t.test("a gateway with the claim that cannot read the others' record does not fetch", async (t) => {
  const world = new TestWorld();
  world.responses.set(a, content(['198.51.100.9']));
  const list = world.open(t.testdir(), { from: [a], shared: world.store });
  world.store.record = 'of others';
  world.store.onClaim = () => (world.store.up = false);
  t.notOk(await list.exits.refreshNow(false));
  t.equal(world.fetched.length, 0);
  t.equal(world.store.record, 'of others', 'their list would be lost');
  world.store.onClaim = () => undefined;
  world.store.up = true;
  t.ok(await list.exits.refreshNow(false), 'once it can read the record, it fetches');
  t.match(world.store.record, '198.51.100.9');
});

t.test('a list file is published for the others, which use it only if they cannot read their own', async (t) => {
  const directory = t.testdir({ list: '198.51.100.9\n' });
  const file = path.join(directory, 'list');
  const world = new TestWorld();
  const here = world.open(directory, { from: [file], shared: world.store });
  await here.exits.load();
  world.store.claimed = true;
  await here.exits.tick();
  world.store.claimed = false;
  await here.exits.tick();
  t.match(world.store.record, '198.51.100.9', 'when no other gateway has the claim any more');
  world.store.onClaim = () => t.fail('a published list is not published again');
  await here.exits.tick();
  world.store.onClaim = () => undefined;
  await unlink(file);
  const elsewhere = world.open(t.testdir(), { from: [file], shared: world.store });
  await elsewhere.exits.load();
  t.equal(says(elsewhere, '198.51.100.9'), '1');
  await writeFile(file, '203.0.113.1\n');
  await elsewhere.exits.tick();
  t.equal(says(elsewhere, '198.51.100.9', '203.0.113.1'), '01');
});

t.test('a list file is published later if another process took over the right to fetch before', async (t) => {
  const directory = t.testdir({ list: '198.51.100.9\n' });
  const world = new TestWorld();
  const { exits } = world.open(directory, { from: [path.join(directory, 'list')], shared: world.store });
  await exits.load();
  // The claim expires during the fetch, and another process gets it.
  world.store.onClaim = () => (world.store.claimed = false);
  await exits.tick();
  t.equal(world.store.record, null);
  world.store.onClaim = () => undefined;
  await exits.tick();
  t.match(world.store.record, '198.51.100.9');
});

t.test('a local list file is not replaced by that of another machine, and its shrinking is limited too', async (t) => {
  const directory = t.testdir({ list: `${manyExits(40).join('\n')}\n` });
  const file = path.join(directory, 'list');
  const world = new TestWorld();
  const here = world.open(path.join(directory, 'here'), { from: [file], shared: world.store });
  await here.exits.tick();
  world.now += minute;
  const read = (): Promise<SourceContent> => Promise.resolve(content(['203.0.113.1']));
  await world
    .open(path.join(directory, 'elsewhere'), { from: [file], shared: world.store, read })
    .exits.refreshNow(true);
  t.match(world.store.record, '203.0.113.1');
  world.now += minute;
  await here.exits.tick();
  t.equal(says(here, '198.51.100.1', '203.0.113.1'), '10');
  await writeFile(file, '192.0.2.1\n');
  await here.exits.tick();
  t.equal(says(here, '198.51.100.1', '192.0.2.1'), '10');
  t.same(here.refused, [`${file} shrunken`]);
});

t.test('the newer list of the snapshot and the cluster record is used', async (t) => {
  const world = new TestWorld();
  const texts: string[] = [];
  for (const exit of ['198.51.100.9', '203.0.113.1']) {
    world.responses.set(a, content([exit]));
    const directory = t.testdir();
    await world.open(directory, { from: [a] }).exits.tick();
    texts.push(await readFile(path.join(directory, 'snapshot.json'), 'utf8'));
    world.now += minute;
  }
  for (const [record, snapshot = ''] of [texts, texts.toReversed()]) {
    world.store.record = record ?? null;
    const list = world.open(t.testdir({ 'snapshot.json': snapshot }), { from: [a], shared: world.store });
    await list.exits.load();
    t.equal(says(list, '198.51.100.9', '203.0.113.1'), '01');
    t.equal(list.exits.status().ageSeconds, 60);
  }
});

t.test('the failure of a source without a list is shared with the other gateways', async (t) => {
  const world = new TestWorld();
  const gateways = [1, 2].map(() => world.open(t.testdir(), { from: [a], shared: world.store }));
  for (const { exits, problems } of gateways) {
    await exits.tick();
    t.match(exits.status().sources[0]?.problem, /ECONNREFUSED/);
    t.same(problems, []);
  }
  t.equal(world.fetched.length, 1);
});

t.test('a gateway that loaded a list from the others publishes it unchanged', async (t) => {
  const world = new TestWorld();
  world.responses.set(a, content(['198.51.100.9']));
  const gateways = [1, 2].map(() => world.open(t.testdir(), { from: [a], shared: world.store }));
  for (const { exits } of gateways) await exits.tick();
  world.responses.set(a, 'unchanged');
  for (const { exits } of [...gateways, ...gateways]) {
    world.now += minute;
    t.ok(await exits.refreshNow(false));
  }
  const third = world.open(t.testdir(), { from: [a], shared: world.store });
  await third.exits.load();
  t.equal(says(third, '198.51.100.9'), '1');
});

t.test('a secret in the query of a URL is in no record, status or message', async (t) => {
  const world = new TestWorld();
  const secret = 'https://a.test/list?token=s3cret';
  const directory = t.testdir();
  world.responses.set(secret, content(['198.51.100.9']));
  const list = world.open(directory, { from: [secret], shared: world.store });
  await list.exits.tick();
  world.responses.set(secret, unreachable);
  world.now += 2 * hour;
  await list.exits.tick();
  const shown = [
    ...[JSON.stringify(list.exits.status()), world.store.record ?? '', list.refused.join()],
    await readFile(path.join(directory, 'snapshot.json'), 'utf8'),
  ];
  t.notMatch(shown.join('\n'), /s3cret/);
  t.match(list.exits.status().sources[0]?.source, 'https://a.test/list?token=***');
});

t.test('closing aborts a fetch in progress, does not count it as a failure, and ends', async (t) => {
  const world = new TestWorld();
  let begun: () => void = () => undefined;
  const fetching = new Promise<void>((resolve) => (begun = resolve));
  const list = world.open(t.testdir(), {
    from: [a],
    read: (_source, _known, signal) =>
      new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () => {
          reject(new Error('aborted'));
        });
        begun();
      }),
  });
  list.exits.start();
  await fetching;
  await list.exits.close();
  t.same(list.refused, []);
  t.match(list.exits.status().sources[0], { problem: null });
  t.same(list.exits.status().sources[0]?.refusals, {});
});
