import type { IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Test } from 'tap';
import { OperatorsClient } from '../../src/adapters/operators/operators-client.js';
import type { RegistryOptions } from '../../src/registry/create-registry.js';
import { OperatorEvents, type Trail } from '../../src/services/operators/operator-events.js';
import { administratorsWith, newServicesTokenKey, operatorsOf } from '../services/operators-fixture.js';
import { servicesFixture } from '../services/services-fixture.js';
import { consoleFixture } from './console-fixture.js';

interface WalletsOptions extends Partial<RegistryOptions> {
  /** The URL of a server in place of the services. */
  readonly url?: string;
  /** How long the registry waits for a response; by default long, because this process may stall. */
  readonly timeoutMilliseconds?: number;
  /** The addresses of the proxies in front of the console. */
  readonly behindProxy?: readonly string[];
}

/** Creates a console whose registry forwards wallet requests to the operators' API of the services, over loopback. */
export async function walletsFixture(
  t: Test,
  { url, timeoutMilliseconds = 60_000, behindProxy, ...further }: WalletsOptions = {},
) {
  const servicesTokenKey = await newServicesTokenKey();
  let address = url ?? null;
  const operatorsApi = new OperatorsClient({ url: () => address, trust: null, timeoutMilliseconds });
  t.teardown(() => operatorsApi.close());
  const options = { servicesTokenKey, operatorsApi, ...further };
  const registry = await consoleFixture(t, 'sqlite::memory:', options, behindProxy);
  const administrators = await administratorsWith([servicesTokenKey], registry.time);
  const backing = await servicesFixture(t);
  const services = operatorsOf(t, backing, { administrators, storesEvents: true });
  /** The headers of each request that the services received. */
  const received: IncomingHttpHeaders[] = [];
  services.app.addHook('onRequest', (request, _reply, done) => {
    received.push(request.headers);
    done();
  });
  if (url === undefined) {
    await services.app.listen({ host: '127.0.0.1', port: 0 });
    address = `http://127.0.0.1:${(services.app.server.address() as AddressInfo).port}`;
  }
  const signInAs = async (name: string, role: string): Promise<string> =>
    registry.signIn((await registry.createPerson(name, [role])).token);
  const trail: Trail = async (events) => {
    t.equal((await registry.call('POST', '/events/services', { body: { events } })).status, 200);
  };
  /** Sends the stored events of the services to the registry; resolves with whether more could be waiting. */
  const sendEvents = (): Promise<boolean> => new OperatorEvents({ database: backing.database, trail }).send();
  return { ...registry, services, received, signInAs, sendEvents };
}

/** An order to move money. */
export const order = { amount: 1050, currency: 'NGN', environment: 'live', reference: 'deposit-1', reason: 'Deposit' };
