import { cp, rename, symlink, unlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import t from 'tap';
import { GeoIpDatabases } from '../../src/adapters/geoip/geoip-databases.js';
import type { GeoIpFiles } from '../../src/adapters/geoip/geoip-databases.js';
import { OperatorError } from '../../src/config/operator-error.js';
import { address } from '../policy/fixtures.js';
import { mmdb } from './mmdb-fixture.js';

const country = (code: string, type = 'Test-Country'): Buffer =>
  mmdb({
    type,
    entries: [
      ['198.51.100.0/24', { country: { iso_code: code } }],
      ['2001:db8::/32', { country: { iso_code: 'SE' } }],
      ['203.0.113.0/24', { country: { iso_code: 'x1' } }],
    ],
  });
const asn = mmdb({
  type: 'Test-ASN',
  entries: [
    ['198.51.100.0/24', { autonomous_system_number: 64_500, autonomous_system_organization: 'Example' }],
    ['203.0.113.0/24', { autonomous_system_number: 0 }],
  ],
});
const anonymous = mmdb({
  type: 'Test-Anonymous-IP',
  entries: [
    ['198.51.100.9', { is_anonymous: true, is_tor_exit_node: true }],
    ['198.51.100.10', { is_anonymous: true }],
    ['198.51.100.11', { is_anonymous: true, is_tor_exit_node: false }],
    ['2001:db8::9', { is_tor_exit_node: true }],
    // Only the boolean true counts, not the number 1.
    ['198.51.100.12', { is_tor_exit_node: 1 }],
  ],
});

interface Opened {
  readonly databases: GeoIpDatabases;
  readonly problems: unknown[];
  reloads: number;
}

async function open(
  t: { teardown(handler: () => unknown): void },
  files: Partial<GeoIpFiles>,
  denyWhenUnavailable = true,
): Promise<Opened> {
  const opened: { problems: unknown[]; reloads: number } = { problems: [], reloads: 0 };
  const databases = await GeoIpDatabases.open(
    { countryFile: null, asnFile: null, anonymousIpFile: null, ...files },
    {
      denyWhenUnavailable,
      onReload: () => (opened.reloads += 1),
      onProblem: (error) => opened.problems.push(error),
    },
  );
  t.teardown(() => {
    databases.close();
  });
  return Object.assign(opened, { databases });
}

t.test('country and autonomous system are reported if the databases have them, otherwise null', async (t) => {
  const directory = t.testdir({ 'c.mmdb': country('US'), 'a.mmdb': asn });
  const { databases } = await open(t, {
    countryFile: path.join(directory, 'c.mmdb'),
    asnFile: path.join(directory, 'a.mmdb'),
  });
  const at = (text: string) => databases.locate(address(text));
  t.same(at('198.51.100.77'), { countryIsoCode: 'US', asNumber: 64_500 });
  t.same(
    at('::ffff:198.51.100.77'),
    { countryIsoCode: 'US', asNumber: 64_500 },
    'an IPv4-mapped address counts as IPv4',
  );
  t.same(at('2001:DB8:0:0::1'), { countryIsoCode: 'SE', asNumber: null });
  t.same(at('192.0.2.1'), { countryIsoCode: null, asNumber: null });
  t.same(at('203.0.113.1'), { countryIsoCode: null, asNumber: null }, 'invalid values are omitted');
  t.equal(databases.isTorExit(address('198.51.100.9')), false, 'without a database no address is an exit');
});

t.test('only addresses marked as Tor exits are exits, not other anonymous ones', async (t) => {
  const directory = t.testdir({ 'x.mmdb': anonymous });
  const { databases } = await open(t, { anonymousIpFile: path.join(directory, 'x.mmdb') });
  for (const exit of ['198.51.100.9', '::ffff:198.51.100.9', '2001:db8::9', '2001:0DB8:0:0:0:0:0:9']) {
    t.equal(databases.isTorExit(address(exit)), true, exit);
  }
  for (const exit of ['64:ff9b::198.51.100.9', '2002:c633:6409::1', '2001::39cc:9bf6']) {
    t.equal(databases.isTorExit(address(exit)), true, `${exit}, which embeds it`);
  }
  for (const clean of [
    '64:ff9b::198.51.100.10',
    '2002:c633:640a::1',
    '198.51.100.10',
    '198.51.100.11',
    '198.51.100.12',
    '198.51.100.13',
    '2001:db8::8',
    '192.0.2.1',
  ]) {
    t.equal(databases.isTorExit(address(clean)), false, clean);
  }
  t.same(databases.locate(address('198.51.100.9')), { countryIsoCode: null, asNumber: null });
});

t.test('a file that is not such a database stops the start with a sentence that names it', async (t) => {
  const whole = country('US');
  const directory = t.testdir({
    'country.mmdb': whole,
    'cut.mmdb': whole.subarray(0, whole.length - 40),
    'page.mmdb': '<html></html>',
    'empty.mmdb': '',
  });
  const rows: [keyof GeoIpFiles, string, RegExp][] = [
    ['countryFile', 'nowhere.mmdb', /^The country database .*nowhere\.mmdb cannot be read: there is no such file\.$/],
    ['countryFile', 'cut.mmdb', /cut\.mmdb cannot be used: it is not a complete database in MaxMind format/],
    ['countryFile', 'page.mmdb', /page\.mmdb cannot be used: it is not a complete database/],
    ['countryFile', 'empty.mmdb', /empty\.mmdb cannot be used: it is not a complete database/],
    ['anonymousIpFile', 'country.mmdb', /country\.mmdb cannot be used: its type is "Test-Country"/],
    ['asnFile', 'country.mmdb', /^The database of autonomous systems .* its type is "Test-Country"/],
  ];
  for (const [option, name, sentence] of rows) {
    const error: unknown = await open(t, { [option]: path.join(directory, name) }).catch((reason: unknown) => reason);
    t.ok(error instanceof OperatorError, `${option} ${name}`);
    t.match((error as Error).message, sentence);
  }
});

t.test(
  'a replaced database is reloaded: after a rename, after the swap of a symbolic link, and after a write',
  async (t) => {
    const directory = t.testdir({
      'renamed.mmdb': country('US'),
      old: { 'c.mmdb': country('US') },
      new: { 'c.mmdb': country('FR') },
    });
    const renamed = path.join(directory, 'renamed.mmdb');
    const linked = path.join(directory, 'current', 'c.mmdb');
    await symlink('old', path.join(directory, 'current'));
    const one = await open(t, { countryFile: renamed });
    const other = await open(t, { countryFile: linked });
    const codeOf = ({ databases }: Opened) => databases.locate(address('198.51.100.1')).countryIsoCode;

    await one.databases.reload();
    t.same([codeOf(one), one.reloads], ['US', 0], 'an unchanged file is not read');

    await writeFile(`${renamed}.new`, country('GB'));
    await rename(`${renamed}.new`, renamed);
    await one.databases.reload();
    t.same([codeOf(one), one.reloads], ['GB', 1]);

    await symlink('new', path.join(directory, 'next'));
    await rename(path.join(directory, 'next'), path.join(directory, 'current'));
    await other.databases.reload();
    t.same([codeOf(other), other.reloads], ['FR', 1]);

    // The other type changes the length of the file. The clock of the file system may be too coarse to show the change.
    await writeFile(renamed, country('IT', 'Test-City'));
    await one.databases.reload();
    t.same([codeOf(one), one.reloads], ['IT', 2]);
    t.same([...one.problems, ...other.problems], []);
  },
);

t.test('a broken, wrong or missing database leaves the previous one in use, and is reported once', async (t) => {
  const directory = t.testdir({ 'x.mmdb': anonymous, 'c.mmdb': country('US') });
  const file = path.join(directory, 'x.mmdb');
  const { databases, problems } = await open(t, { anonymousIpFile: file });
  const stillKnows = async (what: string): Promise<void> => {
    const before = problems.length;
    await databases.reload();
    await databases.reload();
    t.equal(problems.length, before + 1, `${what} is reported once`);
    t.equal(databases.isTorExit(address('198.51.100.9')), true);
  };
  await writeFile(file, anonymous.subarray(0, anonymous.length - 10));
  await stillKnows('half a database');
  await cp(path.join(directory, 'c.mmdb'), file);
  await stillKnows('another database');
  await unlink(file);
  await stillKnows('no database');
  await writeFile(file, mmdb({ type: 'Test-Anonymous-IP', entries: [['192.0.2.1', { is_tor_exit_node: true }]] }));
  await databases.reload();
  t.equal(databases.isTorExit(address('198.51.100.9')), false, 'the next valid one is loaded');
  t.equal(databases.isTorExit(address('192.0.2.1')), true);
});

t.test('a database with a damaged entry returns unknown for it, and not false', async (t) => {
  const directory = t.testdir();
  // The damaged entry is at an address that the check at start does not read.
  const bytes = mmdb({ type: 'Test-Anonymous-IP', entries: [['198.51.100.9', { is_tor_exit_node: true }]] });
  const at = bytes.indexOf('is_tor_exit_node') - 2;
  bytes[at] = 0xff;
  bytes[at + 1] = 0xff;
  const file = path.join(directory, 'x.mmdb');
  await writeFile(file, bytes);
  const strict = await open(t, { anonymousIpFile: file });
  t.equal(strict.databases.isTorExit(address('198.51.100.9')), null);
  t.equal(strict.databases.isTorExit(address('198.51.100.9')), null);
  t.equal(strict.databases.isTorExit(address('2002:c633:6409::1')), null, 'unknown also for an address that embeds it');
  t.equal(strict.problems.length, 1, 'reported once, not for each request');
  t.equal(strict.databases.isTorExit(address('198.51.100.8')), false);
  const lax = await open(t, { anonymousIpFile: file }, false);
  t.equal(
    lax.databases.isTorExit(address('198.51.100.9')),
    false,
    'false only if configured to allow when unavailable',
  );
});

t.test('an IPv4-only database knows nothing about IPv6', async (t) => {
  // 0x2001:0db8… begins with the bits of 32.1.13.184.
  const bytes = mmdb({
    type: 'Test-Anonymous-IP',
    ipVersion: 4,
    entries: [['32.1.13.0/24', { is_tor_exit_node: true }]],
  });
  const directory = t.testdir({ 'x.mmdb': bytes });
  const { databases } = await open(t, { anonymousIpFile: path.join(directory, 'x.mmdb') });
  t.equal(databases.isTorExit(address('32.1.13.184')), true);
  t.equal(databases.isTorExit(address('::ffff:32.1.13.184')), true);
  t.equal(databases.isTorExit(address('2001:db8::1')), false);
});
