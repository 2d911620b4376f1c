import type { IncomingHttpHeaders, RequestListener } from 'node:http';
import http from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import type { Test } from 'tap';
import { OperatorsClient } from '../../src/adapters/operators/operators-client.js';
import type { RegistryOptions } from '../../src/registry/create-registry.js';
import { administratorsWith, newServicesTokenKey, operatorsOf } from '../services/operators-fixture.js';
import { servicesFixture } from '../services/services-fixture.js';
import { consoleFixture } from './console-fixture.js';

/** A console whose registry relays to the operators' API of the services, over loopback. */
export async function walletsFixture(
  t: Test,
  { url, ...further }: Partial<RegistryOptions> & { readonly url?: string } = {},
) {
  const servicesTokenKey = await newServicesTokenKey();
  let address = url ?? null;
  const operatorsApi = new OperatorsClient({ url: () => address, trust: null, timeoutMilliseconds: 2_000 });
  t.teardown(() => operatorsApi.close());
  const registry = await consoleFixture(t, 'sqlite::memory:', { servicesTokenKey, operatorsApi, ...further });
  const administrators = await administratorsWith([servicesTokenKey], registry.time);
  const services = operatorsOf(t, await servicesFixture(t), { administrators });
  /** The headers of the last request that the services received. */
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
  return { ...registry, services, received, signInAs };
}

/** Starts a server that is not the services; returns its URL. */
export async function otherServer(t: Test, respond: RequestListener): Promise<string> {
  const server = http.createServer(respond).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** An order to move money. */
export const order = { amount: 1050, currency: 'NGN', environment: 'live', reference: 'deposit-1', reason: 'Deposit' };
