import { createPublicKey, generateKeyPairSync } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import t, { type Test } from 'tap';
import { operatorsListener } from '../../src/cli/compose/services.js';
import { systemClock } from '../../src/cli/compose/system-clock.js';
import { loadConfig } from '../../src/config/load.js';
import { NoteSigner } from '../../src/evidence/signed-note.js';
import type { RegistryEvent } from '../../src/registry/events/schema.js';
import { startServices } from '../../src/services/start-services.js';
import { createLogger } from '../../src/telemetry/logger.js';
import { ManualTime } from '../registry/manual-time.js';
import { registryFixture, token } from '../registry/registry-fixture.js';
import { newServicesTokenKey } from '../services/operators-fixture.js';
import { startServer } from '../start-server.js';
import { ran } from './ran.js';

/** How the network between services and registry fails: not at all, before the request, or before the response. */
type Network = 'works' | 'away' | 'loses responses';

/** Starts a registry and the services, with a network between them that fails on demand. */
async function fixture(t: Test) {
  const key = await newServicesTokenKey();
  const signer = new NoteSigner('registry.example', generateKeyPairSync('ed25519').privateKey);
  const parts = { servicesTokenKey: key, witness: signer, clock: systemClock };
  const registry = await registryFixture(t, 'sqlite::memory:', parts);
  const { app, call } = registry;
  const registryUrl = await app.listen({ host: '127.0.0.1', port: 0 });
  const newToken = async (administratorId: string) =>
    (await call<{ id: string; token: string }>('POST', '/tokens', { body: { name: 'x', administratorId } })).body.data;
  const create = async (name: string, role: string) => {
    const body = { name, roles: [role] };
    const { id } = (await call<{ id: string }>('POST', '/administrators', { body })).body.data;
    return { id, token: await newToken(id) };
  };
  const [tess, ledger] = [await create('tess', 'treasurer'), await create('ledger', 'services')];

  const network = { state: 'works' as Network, requests: 0 };
  const url = await startServer(t, (request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => (body += chunk.toString()));
    request.on('end', () => {
      network.requests += 1;
      if (network.state === 'away') return void request.socket.destroy();
      const { authorization = '' } = request.headers;
      const headers = { authorization, 'content-type': 'application/json' };
      void fetch(`${registryUrl}${request.url ?? ''}`, { method: 'POST', headers, body }).then(
        async (registryResponse) => {
          const text = await registryResponse.text();
          if (network.state === 'loses responses') return void response.socket?.destroy();
          response.writeHead(registryResponse.status, { 'content-type': 'application/json' }).end(text);
        },
      );
    });
  });

  const directory = t.testdir({
    'registry.pub': createPublicKey(key.privateKey).export({ type: 'spki', format: 'pem' }),
  });
  const secret = (name: string, text: string): string => {
    writeFileSync(`${directory}/${name}`, text, { mode: 0o600 });
    return `${directory}/${name}`;
  };
  const trail = { url, tokenFile: secret('ledger', ledger.token.token) };
  const operators = { listen: { port: 0 }, registryKeys: [`${directory}/registry.pub`], trail };
  const config = loadConfig({ text: JSON.stringify({ services: { operators } }), env: {} });
  const time = new ManualTime();
  const logged: string[] = [];
  const logger = { error: (details: object, message: string) => void logged.push(message, inspect(details)) };
  const services = await startServices({
    ...{ host: '127.0.0.1', port: 0, databaseUrl: 'sqlite::memory:', assertions: null, clock: time, timers: time },
    ...{ bank: { delayMilliseconds: 1000, failingAccounts: [] }, logger },
    operators: await operatorsListener(config.services.operators, createLogger('silent')),
  });
  t.teardown(() => services.close());
  const operatorsUrl = services.operatorsUrl ?? '';

  const access = ['--registry', registryUrl, '--registry-token-file', secret('tess', tess.token.token)];
  const wallets = async (...args: string[]) => {
    const { status, out, err } = await ran('wallets', ...args, '--services', operatorsUrl, ...access);
    t.equal(status, 0, err);
    return out;
  };
  const gauge = async (name: string): Promise<number> => {
    const text = await (await fetch(`${services.url}/metrics`)).text();
    return Number(new RegExp(`^${name} (.+)$`, 'm').exec(text)?.[1]);
  };
  /** Advances the clock in steps of 30 s until the condition holds. The services try to send at least that often. */
  const untilSo = async (isSo: () => boolean | Promise<boolean>): Promise<void> => {
    while (!(await isSo())) {
      time.advance(30_000);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  };
  const ofWallets = async (): Promise<RegistryEvent[]> =>
    (await call<RegistryEvent[]>('GET', '/events?per_page=100')).body.data.filter(({ action }) =>
      action.startsWith('wallet.'),
    );
  return {
    ...registry,
    operatorsUrl,
    registryUrl,
    ledger,
    newToken,
    secret,
    network,
    logged,
    wallets,
    gauge,
    untilSo,
    ofWallets,
  };
}

function inspect(details: object): string {
  const { err } = details as { readonly err?: unknown };
  return err instanceof Error ? `${err.message} ${err.stack ?? ''}` : JSON.stringify(details);
}

const inNaira = ['--currency', 'NGN', '--environment', 'live'];

t.test('a change of a wallet is in the trail of the registry exactly once, after any outage', async (t) => {
  const { createMerchant, gauge, logged, ledger, network, ofWallets, registryUrl, secret, untilSo, wallets } =
    await fixture(t);
  const { id: merchantId } = await createMerchant();
  network.state = 'away';
  const created = await wallets('create', '--merchant', merchantId, ...inNaira, '--reason', 'new shop');
  const walletId = /[0-9a-f-]{36}/.exec(created)?.[0] ?? '';
  const order = [walletId, '--amount', '700', ...inNaira, '--reason', 'Deposit', '--reference', 'one'];
  await wallets('fund', ...order);
  await wallets('fund', ...order);
  await untilSo(() => network.requests >= 3);
  t.equal(await gauge('services_operator_events_waiting'), 2);
  t.ok((await gauge('services_operator_events_oldest_timestamp_seconds')) > 0);
  t.same(await ofWallets(), [], 'the registry has none of them yet');
  t.ok(logged.includes('a task failed; retrying'));

  network.state = 'loses responses';
  const before = network.requests;
  await untilSo(() => network.requests >= before + 3);
  t.equal(await gauge('services_operator_events_waiting'), 2, 'the services do not know that the registry has them');
  network.state = 'works';
  await untilSo(async () => (await gauge('services_operator_events_waiting')) === 0);
  t.ok(Number.isNaN(await gauge('services_operator_events_oldest_timestamp_seconds')));
  const by = { actor: 'tess', claimed: null, source: '127.0.0.1', merchantId };
  t.match(await ofWallets(), [
    { ...by, action: 'wallet.funded', reason: 'Deposit', after: { walletId, amount: 700, reportedBy: 'ledger' } },
    { ...by, action: 'wallet.created', reason: 'new shop', after: { walletId, reportedBy: 'ledger' } },
  ]);
  t.equal((await ofWallets()).length, 2);
  t.notOk(logged.join().includes(ledger.token.token), 'the log has no token');

  const access = ['--registry', registryUrl, '--token-file', secret('owner', token)];
  const { status, out, err } = await ran('events', 'verify', ...access);
  t.equal(status, 0, `${out}${err}`);
});

t.test('refused attempts and first reads in the services are in the trail of the registry', async (t) => {
  const { call, createMerchant, operatorsUrl, untilSo, wallets } = await fixture(t);
  const { id: merchantId } = await createMerchant();
  const created = await wallets('create', '--merchant', merchantId, ...inNaira);
  await wallets('entries', /[0-9a-f-]{36}/.exec(created)?.[0] ?? '');
  for (let count = 0; count < 3; count += 1)
    await fetch(`${operatorsUrl}/wallets`, { headers: { authorization: 'Bearer of-nobody' } });
  const inTrail = async (action: string) =>
    (await call<RegistryEvent[]>('GET', `/events?action=${action}`)).body.data.filter(
      ({ after }) => after?.reportedBy === 'ledger',
    );
  await untilSo(async () => (await inTrail('sign-in.failed')).length > 0);
  t.match(await inTrail('sign-in.failed'), [{ source: '127.0.0.1', after: { cause: 'invalid', refusals: 3 } }]);
  t.match(await inTrail('merchant.read'), [{ actor: 'tess', merchantId, after: { what: 'entries' } }]);
});

t.test('a revoked token of the services is replaced in its file, without a restart', async (t) => {
  const { call, createMerchant, gauge, ledger, logged, newToken, ofWallets, secret, untilSo, wallets } =
    await fixture(t);
  const { id: merchantId } = await createMerchant();
  await call('POST', `/tokens/${ledger.token.id}/revoke`);
  await wallets('create', '--merchant', merchantId, ...inNaira);
  await untilSo(() => logged.some((text) => text.includes('belongs to an administrator with the role services')));
  secret('ledger', (await newToken(ledger.id)).token);
  await untilSo(async () => (await gauge('services_operator_events_waiting')) === 0);
  t.match(await ofWallets(), [{ action: 'wallet.created', actor: 'tess' }]);
});
