import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import t, { type Test } from 'tap';
import { startConfiguredServices } from '../../src/cli/compose/services.js';
import { loadConfig } from '../../src/config/load.js';
import { createLogger } from '../../src/telemetry/logger.js';

/*
 * A page in a browser of this machine can have its own name resolve to a loopback address. Its requests then come from this
 * machine, with whatever headers it likes; but the Host header has the name of the page.
 */

const forbidden = '{"success":false,"message":"Forbidden","data":{"code":"forbidden","errors":[]}}';

/** Services without `identity`: sends them the Host lines, and says what came back. */
async function servicesOf(t: Test, options = '') {
  const listening = 'services: { listen: { port: 0 }, database: { url: "sqlite::memory:" } }';
  const config = loadConfig({ text: `${listening}\n${options}` });
  const services = await startConfiguredServices(config, createLogger('fatal'));
  t.teardown(() => services.close());
  const port = Number(new URL(services.url).port);

  const answerTo = async (hosts: readonly string[], path = '/transactions', version = '1.1'): Promise<string> => {
    const socket = connect(port, '127.0.0.1');
    const lines = [...hosts.map((host) => `Host: ${host}`), 'x-merchant-id: m_1', 'x-merchant-environment: live'];
    socket.write(`GET ${path} HTTP/${version}\r\n${lines.join('\r\n')}\r\nconnection: close\r\n\r\n`);
    return text(socket);
  };
  const statusOf = async (...asked: Parameters<typeof answerTo>): Promise<number> =>
    Number((await answerTo(...asked)).split(' ')[1]);
  return { answerTo, statusOf, port };
}

const rebound = [
  ...['attacker.example', 'attacker.example:7080', 'localhost.attacker.example', '127.0.0.1.attacker.example'],
  ...[
    'attacker.example@127.0.0.1',
    '127.0.0.1@attacker.example',
    'localhost:7080:80',
    'localhost,localhost',
    'xlocalhost',
  ],
  ...['127.1', '0x7f.0.0.1', '2130706433', '127.0.0.256', '[::1', '::1', '[::2]', '10.0.0.1', '0.0.0.0', '', ':7080'],
];

t.test('a name that is rebound to this machine gets nothing, whatever headers its page sends', async (t) => {
  const { answerTo, statusOf } = await servicesOf(t);
  for (const host of rebound) {
    const answer = await answerTo([host]);
    t.match(answer, /^HTTP\/1\.1 403 /, `Host: ${host}`);
    t.ok(answer.endsWith(forbidden));
  }
  t.equal(await statusOf(['attacker.example'], '/nothing'), 403, 'nor does it learn which paths there are');
  t.equal(await statusOf(['localhost', 'attacker.example']), 403, 'two of them');
  t.equal(await statusOf(['attacker.example', 'localhost']), 403);
  t.equal(await statusOf(['localhost', 'localhost']), 403);
  t.equal(await statusOf([], '/transactions', '1.0'), 403, 'none');
});

t.test('hosts of this machine are served, on any port', async (t) => {
  const { statusOf, port } = await servicesOf(t);
  for (const name of ['localhost', 'LocalHost', '127.0.0.1', '127.9.8.7', '[::1]']) {
    for (const suffix of ['', ':80', `:${port}`]) t.equal(await statusOf([name + suffix]), 200, name + suffix);
  }
});

t.test('so are the hosts by which the gateway calls its upstreams', async (t) => {
  const { statusOf } = await servicesOf(
    t,
    'upstreams: { customers: { url: "http://Core.Internal:7080" }, payouts: { url: "http://[fd00::0:7]" }, transactions: { url: "http://10.0.0.7:81" } }',
  );
  for (const host of [
    'core.internal:7080',
    'core.internal',
    'CORE.internal:1',
    '[fd00::7]',
    '10.0.0.7:81',
    'localhost',
  ]) {
    t.equal(await statusOf([host]), 200, host);
  }
  for (const host of ['internal', 'x.core.internal', 'core.internal.', '10.0.0.8']) {
    t.equal(await statusOf([host]), 403, host);
  }
});

t.test('probes and metrics may be asked for by address, as a sidecar does, but not by a rebound name', async (t) => {
  const { statusOf } = await servicesOf(t);
  for (const path of ['/livez', '/readyz', '/metrics', '/openapi.json']) {
    for (const host of ['10.1.2.3:7080', '[2001:db8::7]:7080', '127.0.0.1', 'localhost:7080']) {
      t.equal(await statusOf([host], path), 200, `${path} at ${host}`);
    }
    t.equal(await statusOf([], path, '1.0'), 200, `${path} without a Host`);
    t.equal(await statusOf(['localhost', '127.0.0.1'], path), 403, `${path} with two`);
    for (const host of ['attacker.example', '10.1.2.3.attacker.example', '[2001:db8::7].attacker.example', '']) {
      t.equal(await statusOf([host], path), 403, `${path} at ${host}`);
    }
  }
});
