import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import t from 'tap';
import { mmdb } from '../adapters/mmdb-fixture.js';
import { startRedis, withoutRedis } from '../adapters/redis-server.js';
import { manyExits } from '../adapters/tor-maintenance-fixture.js';
import { startServer } from '../start-server.js';
import { ran } from './ran.js';

const cli = (...args: string[]) => ran('tor-exits', ...args);

/** Writes a configuration file with these settings into the directory. Returns the options that select the file. */
async function configured(directory: string, settings: object): Promise<string[]> {
  const file = path.join(directory, 'gateway.yaml');
  const torExits = { allowReserved: true, snapshotFile: path.join(directory, 'snapshot.json') };
  const { torExits: more = {}, ...rest } = settings as { torExits?: object };
  const config = { keyStore: { kind: 'memory' }, ...rest, torExits: { ...torExits, ...more } };
  await writeFile(file, JSON.stringify(config));
  return ['--config', file];
}

t.test('refresh fetches every source and stores the list; status and check then need no source', async (t) => {
  let body = '198.51.100.9\n2001:db8::5\n';
  let requests = 0;
  const origin = await startServer(t, (_request, response) => {
    requests += 1;
    response.end(body);
  });
  const url = `${origin}/list`;
  const directory = t.testdir();
  const config = await configured(directory, { torExits: { sources: [url] } });

  const early = await cli('status', ...config);
  t.same([early.status, early.err.includes('The Tor exit list is missing or too old')], [1, true]);
  t.match(early.out, /in force +no\n/);
  t.equal((await cli('check', '198.51.100.9', ...config)).status, 1, 'the check fails without a list');

  const refreshed = await cli('refresh', ...config);
  t.same([refreshed.status, refreshed.err], [0, '']);
  t.match(refreshed.out, /in force +yes\nexits +2\nsha-256 +[0-9a-f]{64}\nage +\d+ s\n/);
  t.match(refreshed.out, new RegExp(`^SOURCE .*\n${url} +\\d{4}-.*Z +- +2 +0$`, 'm'));
  t.equal(requests, 1);

  const status = JSON.parse((await cli('status', '--json', ...config)).out) as object;
  t.match(status, { available: true, size: 2, sources: [{ source: url, size: 2, problem: null }] });

  const exit = await cli('check', '2001:DB8:0:0::5', ...config);
  t.same(exit, {
    status: 1,
    out: '2001:db8::5 is a Tor exit.\n',
    err: 'Gateways reject requests from 2001:db8::5 (tor_blocked).\n',
  });
  t.same(await cli('check', '::ffff:192.0.2.1', ...config), {
    status: 0,
    out: '192.0.2.1 is no Tor exit.\n',
    err: '',
  });
  const json = await cli('check', '198.51.100.9', '--json', ...config);
  t.match(JSON.parse(json.out), { address: '198.51.100.9', exit: true, listed: true, anonymousIp: null });
  t.equal(requests, 1, 'only refresh sent a request');

  body = '<html></html>';
  const failed = await cli('refresh', ...config);
  t.equal(failed.status, 1);
  t.equal(failed.err, `No new list from ${url}: the content is an HTML or XML page, not a list of Tor exits.\n`);
  t.match(failed.out, /in force +yes\n/, 'the previous list is still in force');
  t.equal((await cli('check', '198.51.100.9', ...config)).out, '198.51.100.9 is a Tor exit.\n');
});

t.test('a much smaller list is accepted only with the confirmation option', async (t) => {
  const directory = t.testdir({ list: manyExits(40).join('\n') });
  const file = path.join(directory, 'list');
  const config = await configured(directory, { torExits: { sources: [file] } });
  t.equal((await cli('refresh', ...config)).status, 0);
  await writeFile(file, '203.0.113.1\n');
  const refused = await cli('refresh', ...config);
  t.equal(refused.status, 1);
  t.match(
    refused.err,
    /is much smaller than the previous list \(1 instead of 40 addresses\); .* run "merchant-gateway tor-exits refresh --accept-smaller"/,
  );
  t.equal((await cli('check', '198.51.100.1', ...config)).status, 1);
  t.equal((await cli('refresh', '--accept-smaller', ...config)).status, 0);
  t.equal((await cli('check', '198.51.100.1', ...config)).status, 0);
});

t.test('status and check change nothing', async (t) => {
  const directory = t.testdir({ list: '198.51.100.9\n' });
  const config = await configured(directory, { torExits: { sources: [path.join(directory, 'list')] } });
  t.equal((await cli('status', ...config)).status, 0, 'a list file is read directly');
  t.equal((await cli('check', '198.51.100.9', ...config)).status, 1);
  await t.rejects(readFile(path.join(directory, 'snapshot.json')), { code: 'ENOENT' });
});

t.test('a configuration that does not reject Tor exits is reported', async (t) => {
  const directory = t.testdir({ list: '198.51.100.9\n' });
  const sources = [path.join(directory, 'list')];
  const config = await configured(directory, { torExits: { sources, enabled: false } });
  t.match(await cli('status', ...config), {
    status: 0,
    err: 'Gateways do not use the list: torExits.enabled is false.\n',
  });
  t.match(await cli('check', '198.51.100.9', ...config), {
    status: 1,
    err: 'Gateways do not reject Tor exits: torExits.enabled is false.\n',
  });
});

t.test('check also looks up the database of anonymous addresses', async (t) => {
  const database = mmdb({ type: 'Test-Anonymous-IP', entries: [['203.0.113.7', { is_tor_exit_node: true }]] });
  const directory = t.testdir({ 'x.mmdb': database, list: '198.51.100.9\n' });
  const geoip = { anonymousIpFile: path.join(directory, 'x.mmdb') };
  const both = await configured(directory, { geoip, torExits: { sources: [path.join(directory, 'list')] } });
  const known = await cli('check', '203.0.113.7', '--json', ...both);
  t.same(
    [known.status, known.out.includes('"listed": false'), known.out.includes('"anonymousIp": true')],
    [1, true, true],
  );
  t.equal((await cli('check', '192.0.2.1', ...both)).status, 0);
  const alone = await configured(directory, { geoip, torExits: { sources: [] } });
  t.equal((await cli('check', '203.0.113.7', ...alone)).status, 1);
  t.equal((await cli('check', '192.0.2.1', ...alone)).status, 0, 'without sources the database decides');
  const missing = await configured(directory, { geoip, torExits: { sources: [path.join(directory, 'nowhere')] } });
  t.equal((await cli('check', '192.0.2.1', ...missing)).status, 1, 'a missing list is still an error');
});

t.test('a usage error exits with status 2', async (t) => {
  for (const ip of [
    '198.51.100',
    '198.51.100.9/32',
    'fe80::1%eth0',
    '198.51.100.9:443',
    'exit.example',
    '010.0.0.1',
    '',
  ]) {
    const result = await cli('check', ip);
    t.equal(result.status, 2, ip);
    t.match(result.err, /expected one IPv4 or IPv6 address, without a zone, a port or a prefix/);
  }
  t.equal((await cli('check')).status, 2);
  t.equal((await cli('bogus')).status, 2);
  t.equal((await cli('status', '--config', '/nowhere.yaml')).status, 2);
});

t.test('with Redis the commands use the shared list', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  const directory = t.testdir({ list: '198.51.100.9\n' });
  const keyStore = { kind: 'redis', redis: { url: server.url } };
  const config = await configured(directory, { keyStore, torExits: { sources: [path.join(directory, 'list')] } });
  t.equal((await cli('refresh', ...config)).status, 0);
  t.match(JSON.parse((await server.client.get('mg:tor-exits')) ?? ''), { size: 1 });
  await server.client.set('mg:tor-exits:lock', 'somebody', 'PX', 60_000);
  const busy = await cli('refresh', ...config);
  t.same(
    [busy.status, busy.err],
    [
      1,
      'The list was not refreshed. If no message above gives a reason, another process is reading the sources: try again in a minute.\n',
    ],
  );
  await server.kill();
  const down = await cli('refresh', ...config);
  t.equal(down.status, 1);
  t.match(down.err, /cannot be read from the key store: .*\n(?:.*\n)*The list was not refreshed\./);
});
