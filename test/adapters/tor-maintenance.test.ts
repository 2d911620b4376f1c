import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat, symlink, truncate, unlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import t from 'tap';
import { exitSourceOf, type SourceContent } from '../../src/adapters/tor/exit-source.js';
import { RefreshSchedule } from '../../src/adapters/tor/source-reader.js';
import { compileIpRanges } from '../../src/policy/ip-ranges.js';
import { address } from '../policy/fixtures.js';
import {
  type Answer,
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

/** Which of these are exits: 1, 0, or ? where that cannot be told. */
function says({ exits }: Maintained, ...texts: string[]): string {
  return texts.map((text) => ({ true: '1', false: '0', null: '?' })[String(exits.has(address(text)))]).join('');
}

t.test('before there is a list nothing can be told, and with "allow" nobody is an exit', async (t) => {
  const world = new TestWorld();
  const strict = world.open(t.testdir(), { from: [a] });
  await strict.exits.load();
  t.equal(says(strict, '198.51.100.9'), '?');
  t.equal(strict.exits.unavailableReason(), 'no list is loaded yet');
  t.equal(strict.exits.digest, null);
  t.equal(world.fetched.length, 0, 'loading asks no server');
  const lax = world.open(t.testdir(), { from: [a], denyWhenUnavailable: false });
  await lax.exits.load();
  t.equal(says(lax, '198.51.100.9'), '0');
  t.equal(lax.exits.unavailableReason(), null);
  t.equal(lax.exits.status().available, false, 'which operators can see');
});

t.test('several sources are joined, and the status tells each of them', async (t) => {
  const world = new TestWorld();
  world.answers.set(a, content(['198.51.100.9', '203.0.113.1']));
  world.answers.set(b, content(['203.0.113.1', '2001:db8::5']));
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
      { source: b, size: 2, problem: null, refusals: {} },
    ],
  });
});

t.test('whatever goes wrong with a source, its list before stays, and the reason is counted and told', async (t) => {
  const exits = manyExits(40);
  const rows: [reason: string, Answer][] = [
    ['empty', content('# nothing\n')],
    ['html', content('<html><body>198.51.100.1</body></html>')],
    ['malformed', content([...exits, 'x'])],
    ['malformed', content('{"relays":[')],
    ['shrunken', content(exits.slice(0, 19))],
    ['names_trusted_proxy', content([...exits, '192.0.2.200'])],
    ['unreachable', unreachable],
    ['unreadable', new Error('nobody foresaw this')],
  ];
  for (const [reason, answer] of rows) {
    const world = new TestWorld();
    world.answers.set(a, content(exits));
    world.answers.set(b, content(['203.0.113.1']));
    const rules = { allowReserved: true, trustedProxies: compileIpRanges(['192.0.2.192/26']) };
    const list = world.open(t.testdir(), { from: [a, b], rules });
    await list.exits.tick();
    const { digest } = list.exits;
    world.answers.set(a, answer);
    world.answers.set(b, content(['203.0.113.1', '203.0.113.2']));
    world.now += 2 * hour;
    await list.exits.tick();
    t.equal(says(list, '198.51.100.0', '198.51.100.39', '203.0.113.2'), '111', `${reason}: the other source goes on`);
    t.same(list.refused, [`${a} ${reason}`]);
    t.match(list.exits.status().sources[0], { size: 40, ageSeconds: 7200, refusals: { [reason]: 1 } });
    t.ok((list.exits.status().sources[0]?.problem ?? '').length > 10, 'the status says why');
    t.equal(list.exits.unavailableReason(), null);
    t.not(list.exits.digest, digest);
    world.answers.set(a, content([...exits, '192.0.2.1']));
    world.now += hour;
    await list.exits.tick();
    t.equal(says(list, '192.0.2.1'), '1', 'a good one takes its place');
    t.equal(list.exits.status().sources[0]?.problem, null);
  }
});

t.test(
  'a list is fetched conditionally, and one that has not changed is confirmed without being swapped',
  async (t) => {
    const world = new TestWorld();
    world.answers.set(a, content(['198.51.100.9'], { etag: '"1"' }));
    const list = world.open(t.testdir(), { from: [a] });
    await list.exits.tick();
    world.answers.set(a, 'unchanged');
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
    t.equal(world.fetched[2]?.etag, '"1"', 'its validator is kept');
  },
);

/** Seconds between the attempts at the sources in this time. */
async function gapsOf(world: TestWorld, list: Maintained, milliseconds: number): Promise<number[]> {
  const attempts: number[] = [];
  for (const end = world.now + milliseconds; world.now < end; world.now += 10_000) {
    const before = world.fetched.length;
    await list.exits.tick();
    if (world.fetched.length > before) attempts.push(world.now / 1000);
  }
  return attempts.slice(1).map((at, index) => at - (attempts[index] ?? 0));
}

t.test('while no list is in force, a source is tried each minute', async (t) => {
  const world = new TestWorld();
  const list = world.open(t.testdir(), { from: [a] });
  t.same(await gapsOf(world, list, 6 * minute), [30, 60, 60, 60, 60, 60]);
  world.answers.set(b, content(['198.51.100.9']));
  const other = world.open(t.testdir(), { from: [a, b] });
  t.same(await gapsOf(world, other, 5 * minute), [30, 60, 120], 'but not where another source has one');
  world.now += 49 * hour;
  world.answers.set(b, unreachable);
  t.ok(
    (await gapsOf(world, other, 30 * minute)).every((gap) => gap <= 60),
    'and again when that is too old',
  );
});

t.test('a source is read again after its interval, after a failure sooner, then less and less often', async (t) => {
  const world = new TestWorld();
  world.answers.set(a, content(['198.51.100.9']));
  const list = world.open(t.testdir(), { from: [a] });
  await list.exits.tick();
  world.answers.set(a, unreachable);
  world.now += hour;
  const start = world.now;
  t.same(
    await gapsOf(world, list, 3 * hour),
    [30, 60, 120, 240, 480, 960, 1920, 3600],
    'seconds between attempts that fail',
  );
  world.answers.set(a, content(['198.51.100.9']));
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

t.test('the time until the next attempt is spread by a tenth, and drawn once for each', (t) => {
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
  for (let look = 0; look < 50; look += 1) schedule.isDue(source, state, at + minute, true);
  t.equal(draws, 1);
  t.ok(
    schedule.isDue(source, state, at - 2 * hour, true),
    'an attempt that lies ahead, by a clock set back, counts for nothing',
  );
  t.end();
});

t.test('a list that no source has confirmed for too long is none any more', async (t) => {
  const world = new TestWorld();
  world.answers.set(a, content(['198.51.100.9']));
  world.answers.set(b, content(['203.0.113.1']));
  const list = world.open(t.testdir(), { from: [a, b] });
  await list.exits.tick();
  world.answers.set(a, unreachable);
  world.now += 47 * hour;
  await list.exits.tick();
  t.equal(says(list, '198.51.100.9', '203.0.113.1'), '11');
  world.answers.set(b, unreachable);
  world.now += 2 * hour;
  await list.exits.tick();
  t.equal(says(list, '198.51.100.9', '203.0.113.1'), '01', 'of the older source nothing counts; the younger one stays');
  world.now += 46 * hour;
  t.equal(says(list, '203.0.113.1'), '1');
  world.now += 1;
  t.equal(says(list, '203.0.113.1'), '?', 'to the millisecond, also where nothing ticks any more');
  t.equal(list.exits.unavailableReason(), 'the list is too old');
  t.equal(list.exits.digest, null);
  t.equal(list.exits.status().available, false);
  world.answers.set(b, content(['203.0.113.1']));
  await list.exits.tick();
  t.equal(says(list, '198.51.100.9', '203.0.113.1'), '01');
});

t.test('a list file that is replaced is read at once, however it is replaced', async (t) => {
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
  t.equal(says(list, '198.51.100.1', '198.51.100.22', '192.0.2.1'), '011', 'by a rename');
  await writeFile(file, '198.51.100.3\n');
  await list.exits.tick();
  t.equal(says(list, '198.51.100.22', '198.51.100.3'), '01', 'by writing into it');
  await symlink('new', path.join(directory, 'next'));
  await rename(path.join(directory, 'next'), path.join(directory, 'current'));
  await list.exits.tick();
  t.equal(says(list, '192.0.2.1', '192.0.2.22'), '01', 'by the swap of a link above it');
  t.same(list.refused, []);
  const swaps = list.swaps();
  await list.exits.tick();
  t.equal(list.swaps(), swaps, 'and only then');
});

t.test('a list file that cannot be used leaves the list before, and says why', async (t) => {
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
    t.equal(list.refused.length, 1, 'which is told once');
    t.match(list.refused[0], reason);
    t.equal(says(list, '198.51.100.7'), '1');
  }
});

t.test('without its file a gateway is not ready, and becomes it when the file is there', async (t) => {
  const directory = t.testdir();
  const file = path.join(directory, 'list');
  const world = new TestWorld();
  const list = world.open(directory, { from: [file] });
  await list.exits.load();
  t.equal(list.exits.unavailableReason(), 'no list is loaded yet');
  t.match(list.exits.status().sources[0]?.problem, /there is no such file/);
  await writeFile(file, '198.51.100.9\n');
  await list.exits.tick();
  t.equal(says(list, '198.51.100.9'), '1');
  world.now += 47 * hour;
  await list.exits.tick();
  t.equal(list.exits.status().ageSeconds, 0, 'a file that can be read is confirmed by reading it');
});

t.test('the snapshot on disk gives the last good list to the next start, in whatever order things fail', async (t) => {
  const directory = t.testdir();
  const world = new TestWorld();
  world.answers.set(a, content(['198.51.100.9', '2001:db8::5'], { etag: '"1"' }));
  const first = world.open(directory, { from: [a] });
  await first.exits.tick();
  t.same(await readdir(directory), ['snapshot.json'], 'nothing is left beside it');
  world.answers.set(a, unreachable);
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
  t.equal(says(other, '198.51.100.9'), '?', 'or of another source');
});

t.test('a snapshot that was damaged or forged is not used', async (t) => {
  const world = new TestWorld();
  world.answers.set(a, content(['198.51.100.9', '203.0.113.1']));
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
    const isDue = what !== 'from the future'; // which a clock that is set right makes good
    t.equal(list.problems.length + list.refused.length, isDue ? 1 : 0, `${what}: operators are told of it`);
  }
  const rules = { allowReserved: true, trustedProxies: compileIpRanges(['203.0.113.0/24']) };
  const list = world.open(t.testdir({ 'snapshot.json': good }), { from: [a], rules });
  await list.exits.load();
  t.same(list.refused, [`${a} names_trusted_proxy`], 'it keeps to the rules of today');
  t.same(list.exits.status().sources[0]?.refusals, { names_trusted_proxy: 1 }, 'and is counted with the others');
  t.equal(says(list, '198.51.100.9'), '?');
});

t.test('a snapshot that cannot be written is a problem, and the list is in force all the same', async (t) => {
  const directory = t.testdir({ file: '' });
  const world = new TestWorld();
  world.answers.set(a, content(['198.51.100.9']));
  const list = world.open(path.join(directory, 'file'), { from: [a] });
  await list.exits.tick();
  await list.exits.tick();
  t.same(list.problems, ['the snapshot of the Tor exit list cannot be written'], 'which is told once');
  t.equal(says(list, '198.51.100.9'), '1');
  await rm(path.join(directory, 'file'));
  await list.exits.tick();
  t.match(
    await readFile(path.join(directory, 'file', 'snapshot.json'), 'utf8'),
    '198.51.100.9',
    'and it is tried again',
  );
  t.same(list.recovered, ['the snapshot of the Tor exit list is written again'], 'which is told too');
  t.equal(world.fetched.length, 1, 'without a new list');
  const { ino } = await stat(path.join(directory, 'file', 'snapshot.json'));
  await list.exits.tick();
  t.equal((await stat(path.join(directory, 'file', 'snapshot.json'))).ino, ino, 'what is written stays as it is');
});

t.test('what another process writes into the snapshot file is taken over', async (t) => {
  const directory = t.testdir();
  const world = new TestWorld();
  world.answers.set(a, content(manyExits(40)));
  const gateway = world.open(directory, { from: [a] });
  await gateway.exits.tick();
  world.now += minute;
  world.answers.set(a, content(['203.0.113.1']));
  const command = world.open(directory, { from: [a] });
  await command.exits.load();
  t.ok(await command.exits.refreshNow(false));
  t.match(command.exits.status().sources[0]?.problem, /--accept-smaller/, 'the refusal says what takes it');
  t.ok(await command.exits.refreshNow(true));
  await gateway.exits.tick();
  t.equal(says(gateway, '203.0.113.1', '198.51.100.1'), '10');
});

t.test('of a cluster one gateway fetches, and the others have its list after their next look', async (t) => {
  const world = new TestWorld();
  world.answers.set(a, content(['198.51.100.9']));
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

  world.answers.set(a, content(['192.0.2.1']));
  world.now += 2 * hour;
  for (const { exits } of gateways) await exits.tick();
  t.equal(world.fetched.length, 2);
  t.same(
    gateways.map((one) => says(one, '198.51.100.9', '192.0.2.1')),
    ['01', '01', '01'],
  );

  world.answers.set(a, unreachable);
  world.now += 2 * hour;
  for (let look = 0; look < 3; look += 1) for (const { exits } of gateways) await exits.tick();
  t.equal(world.fetched.length, 3, 'a failure is not repeated by each of them');
  t.ok(
    gateways.every(({ exits }) => (exits.status().sources[0]?.problem ?? '') !== ''),
    'and all of them know of it',
  );
  world.now += 30_000;
  for (const { exits } of gateways) await exits.tick();
  t.equal(world.fetched.length, 4, 'it is tried again by one');
});

t.test('nobody fetches without the claim: while another does, or while the key store is away', async (t) => {
  const world = new TestWorld();
  world.answers.set(a, content(['198.51.100.9']));
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
  t.equal(says(list, '198.51.100.9'), '1', 'what was known stays known');
});

t.test('an outage of the key store is told when it begins and when it is over, not with each attempt', async (t) => {
  const world = new TestWorld();
  world.answers.set(a, content(['198.51.100.9']));
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
  const ends = ['read from', 'written to'].map((how) => `the Tor exit list is ${how} the key store again`);
  t.same(list.recovered.slice(0, 3), [...ends, ends[0]]);
  t.equal(list.recovered.length, 4);
});

t.test(
  'whoever gets the claim looks first whether it is still needed, and loses no list that it does not know',
  async (t) => {
    const world = new TestWorld();
    world.answers.set(a, content(['198.51.100.9']));
    world.answers.set(b, content(['203.0.113.1']));
    const one = world.open(t.testdir(), { from: [a], shared: world.store });
    await one.exits.tick();
    const { record } = world.store;
    world.store.record = null;
    const late = world.open(t.testdir(), { from: [a], shared: world.store });
    world.store.onClaim = () => (world.store.record = record);
    await late.exits.tick();
    t.equal(world.fetched.length, 1, 'another one was quicker');
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
      'gateways of two configurations do not undo each other',
    );
    t.same([says(one, '198.51.100.9', '203.0.113.1'), says(next, '198.51.100.9', '203.0.113.1')], ['10', '01']);
    const restarted = world.open(t.testdir(), { from: [a], shared: world.store });
    await restarted.exits.tick();
    t.equal(says(restarted, '198.51.100.9'), '1', 'nor does the record lose what only one of them reads');
    t.equal(world.fetched.length, 2);
  },
);

t.test('a record of the cluster that is damaged is not used, and is replaced', async (t) => {
  const world = new TestWorld();
  world.answers.set(a, content(['198.51.100.9']));
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
  t.equal(list.problems.length, 3, 'each of them is told once, and that there is none is no problem');
});

t.test('clocks of two gateways may differ by five minutes', async (t) => {
  const world = new TestWorld();
  world.answers.set(a, content(['198.51.100.9']));
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

t.test('of a source that is read no more, the record keeps the list for a day', async (t) => {
  const world = new TestWorld();
  world.answers.set(a, content(['198.51.100.9']));
  world.answers.set(b, content(['203.0.113.1']));
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

t.test('nothing is fetched by whoever has the claim and cannot look what the others have', async (t) => {
  const world = new TestWorld();
  world.answers.set(a, content(['198.51.100.9']));
  const list = world.open(t.testdir(), { from: [a], shared: world.store });
  world.store.record = 'of others';
  world.store.onClaim = () => (world.store.up = false);
  t.notOk(await list.exits.refreshNow(false));
  t.equal(world.fetched.length, 0);
  t.equal(world.store.record, 'of others', 'a list of theirs would be lost');
  world.store.onClaim = () => undefined;
  world.store.up = true;
  t.ok(await list.exits.refreshNow(false), 'when it can be, it is');
  t.match(world.store.record, '198.51.100.9');
});

t.test('a list file is published for the others, who take it only where they cannot read their own', async (t) => {
  const directory = t.testdir({ list: '198.51.100.9\n' });
  const file = path.join(directory, 'list');
  const world = new TestWorld();
  const here = world.open(directory, { from: [file], shared: world.store });
  await here.exits.load();
  world.store.claimed = true;
  await here.exits.tick();
  world.store.claimed = false;
  await here.exits.tick();
  t.match(world.store.record, '198.51.100.9', 'when nobody else has the claim any more');
  world.store.onClaim = () => t.fail('what is published is not published again');
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

t.test('a list file of this machine is not displaced by that of another one, and shrinks as little', async (t) => {
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

t.test('of the snapshot and the record of the cluster the newer list is in force', async (t) => {
  const world = new TestWorld();
  const texts: string[] = [];
  for (const exit of ['198.51.100.9', '203.0.113.1']) {
    world.answers.set(a, content([exit]));
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

t.test('of a source that never had a list the others learn as well that it failed', async (t) => {
  const world = new TestWorld();
  const gateways = [1, 2].map(() => world.open(t.testdir(), { from: [a], shared: world.store }));
  for (const { exits, problems } of gateways) {
    await exits.tick();
    t.match(exits.status().sources[0]?.problem, /ECONNREFUSED/);
    t.same(problems, []);
  }
  t.equal(world.fetched.length, 1);
});

t.test('whoever took a list over from the others gives it on as it was', async (t) => {
  const world = new TestWorld();
  world.answers.set(a, content(['198.51.100.9']));
  const gateways = [1, 2].map(() => world.open(t.testdir(), { from: [a], shared: world.store }));
  for (const { exits } of gateways) await exits.tick();
  world.answers.set(a, 'unchanged');
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
  world.answers.set(secret, content(['198.51.100.9']));
  const list = world.open(directory, { from: [secret], shared: world.store });
  await list.exits.tick();
  world.answers.set(secret, unreachable);
  world.now += 2 * hour;
  await list.exits.tick();
  const shown = [
    ...[JSON.stringify(list.exits.status()), world.store.record ?? '', list.refused.join()],
    await readFile(path.join(directory, 'snapshot.json'), 'utf8'),
  ];
  t.notMatch(shown.join('\n'), /s3cret/);
  t.match(list.exits.status().sources[0]?.source, 'https://a.test/list?token=***');
});

t.test('closing breaks off what is being fetched, counts it for nothing and ends', async (t) => {
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
  t.match(list.exits.status().sources[0], { problem: null, refusals: {} });
});
