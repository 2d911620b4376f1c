import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { withoutRedis } from '../adapters/redis-server.js';
import { createPostgresDatabase, postgresAlone } from '../database/each-database.js';
import { openSite } from '../deployment/deployment.js';
import { buildFormerRelease, withoutFormerRelease } from './former-release.js';
import {
  startMixedDeployment,
  type CreatedKey,
  type MixedDeployment,
  type RunningGateway,
  type RunningRegistry,
} from './mixed-deployment.js';

/*
 * The previous release and this one, as processes on one Redis and one database, under steady requests. Whichever
 * release runs the registry, no request fails or gets a wrong response. Once a registry has reported the revocation of
 * a key as in force, no later request with this key is accepted. Whether a registry confirms at once or lists pending
 * gateways depends on the release.
 */

const accepted = '200 OK';
const refused = '401 API Key is inactive or revoked';
const undecided = '503 Service temporarily unavailable';
const unknownKey = 'svc_live_3Uz0cQ8mXo2Nobodys';
const keysOfRound = 3;
/** A gateway that the registry lists as pending must apply a change within this time, or the test fails. */
const longestMilliseconds = 20_000;
const current = '.';

class Upgrade {
  readonly #t: Test;
  readonly #deployment: MixedDeployment;
  /** The running gateways. The steady requests are distributed evenly over them. */
  readonly #gateways: RunningGateway[] = [];
  readonly #problems: string[] = [];
  #valid: CreatedKey | null = null;
  #revoked: CreatedKey | null = null;
  #merchantId = '';
  #requests = 0;
  #repeated = 0;
  #isOver = false;
  #load: Promise<unknown> = Promise.resolve();

  constructor(t: Test, deployment: MixedDeployment) {
    this.#t = t;
    this.#deployment = deployment;
  }

  /** Starts a gateway from each build in `roots`, creates a valid and a revoked key, and starts the steady requests. */
  async begin(registry: RunningRegistry, roots: readonly string[]): Promise<void> {
    this.#merchantId = await registry.createMerchant();
    this.#gateways.push(...(await Promise.all(roots.map((root) => this.#deployment.startGateway(root)))));
    while ((await registry.gatewayIds()).length < roots.length) await sleep(20);
    this.#valid = await registry.createKey(this.#merchantId);
    this.#revoked = await registry.createKey(this.#merchantId);
    await registry.revoke(this.#revoked.keyId);
    for (const key of [this.#valid.key, this.#revoked.key]) await this.#settle(key, key === this.#valid.key);
    this.#load = Promise.all(Array.from({ length: 4 }, (_, worker) => this.#ask(worker)));
    this.#t.teardown(() => (this.#isOver = true));
  }

  async end(): Promise<void> {
    this.#isOver = true;
    await this.#load;
    this.#t.comment(`${this.#requests} requests`);
    if (this.#problems.length > 0) this.#t.comment((await this.#deployment.undecided()).slice(0, 10).join('\n'));
    this.#t.ok(this.#requests > 200, 'requests were sent all the time');
    this.#t.ok(this.#repeated <= this.#requests / 100, `${this.#repeated} requests were repeated`);
    this.#t.same(this.#problems.slice(0, 10), [], `each of ${this.#requests} requests got the right response`);
  }

  /** Replaces a gateway by one of another release, as a rolling upgrade does. */
  async replace(index: number, root: string, registry: RunningRegistry): Promise<void> {
    const before = new Set(await registry.gatewayIds());
    const gateway = await this.#deployment.startGateway(root);
    while ((await registry.gatewayIds()).every((id) => before.has(id))) await sleep(20);
    const [former] = this.#gateways.splice(index, 1, gateway);
    await former?.stop();
  }

  /** Creates and revokes keys while sending requests with them to each gateway. */
  async round(title: string, registries: readonly RunningRegistry[]): Promise<void> {
    const outcomes = await Promise.all(
      Array.from({ length: keysOfRound }, (_, index) => {
        const registry = registries[index % registries.length];
        if (registry === undefined) throw new Error('there is no registry');
        return this.#revokeUnderLoad(registry);
      }),
    );
    this.#t.comment(`${title}: ${outcomes.filter(Boolean).length} of ${outcomes.length} revocations in force at once`);
  }

  async #revokeUnderLoad(registry: RunningRegistry): Promise<boolean> {
    const { key, keyId, isInForce } = await registry.createKey(this.#merchantId);
    if (isInForce) await this.#expectAll(key, accepted, 'a key whose creation is in force');
    else await this.#settle(key, true);
    let inForceAt = Infinity;
    let isOver = false;
    const asking = this.#gateways.map(async (gateway) => {
      while (!isOver) {
        const begunAt = performance.now();
        const verdict = await gateway.ask(key);
        if (verdict !== refused && !(verdict === accepted && begunAt < inForceAt)) {
          this.#problems.push(`${verdict} after a revocation in force`);
        }
        await sleep(2);
      }
    });
    const isRevoked = await registry.revoke(keyId);
    if (isRevoked) {
      inForceAt = performance.now();
      await this.#expectAll(key, refused, 'a revocation in force');
      await sleep(100);
    } else {
      await this.#settle(key, false);
    }
    isOver = true;
    await Promise.all(asking);
    return isRevoked;
  }

  async #expectAll(key: string, expected: string, what: string): Promise<void> {
    for (const verdict of await Promise.all(this.#gateways.map((gateway) => gateway.ask(key)))) {
      if (verdict !== expected) this.#problems.push(`${verdict} after ${what}`);
    }
  }

  /**
   * Waits until each gateway accepts the key, or refuses it if it is not valid. Used after a change that the registry
   * did not confirm as in force.
   */
  async #settle(key: string, isValid: boolean): Promise<void> {
    const begun = performance.now();
    for (;;) {
      const verdicts = await Promise.all(this.#gateways.map((gateway) => gateway.ask(key)));
      if (verdicts.every((verdict) => (verdict === accepted) === isValid)) return;
      if (performance.now() - begun > longestMilliseconds) {
        this.#problems.push(`${verdicts.join(', ')} long after a change that was not confirmed as in force`);
        return;
      }
      await sleep(10);
    }
  }

  async #ask(worker: number): Promise<void> {
    const kinds = [
      [this.#valid?.key ?? '', accepted],
      [this.#valid?.key ?? '', accepted],
      [this.#revoked?.key ?? '', refused],
      [unknownKey, '401 Invalid API Key'],
    ] as const;
    for (let turn = worker; !this.#isOver; turn += 1) {
      const gateway = this.#gateways[turn % this.#gateways.length];
      const [key, expected] = kinds[(turn >> 1) % kinds.length] ?? kinds[0];
      let verdict = await gateway?.ask(key);
      this.#requests += 1;
      // After one registry has replaced another, gateways query the new one for keys that Redis lacks. A busy machine
      // can delay the registry's reply by a second. Then 503 is right, and a client repeats the request.
      if (verdict === undecided) {
        this.#repeated += 1;
        verdict = await gateway?.ask(key);
      }
      if (verdict !== expected) this.#problems.push(`${verdict ?? 'no gateway'} instead of ${expected}`);
      await sleep(5);
    }
  }
}

t.test('rolling upgrade from the previous release', { skip: withoutFormerRelease || withoutRedis }, async (t) => {
  const former = await buildFormerRelease();
  t.jobs = 3; // each waits more than it computes
  void t.test('upgrading the registry first, then one gateway at a time', { buffered: true }, async (t) => {
    const deployment = await startMixedDeployment(t, null);
    const before = await deployment.startRegistry(former);
    const upgrade = new Upgrade(t, deployment);
    await upgrade.begin(before, [former, former]);
    await upgrade.round('all of the former release', [before]);
    await before.stop();
    const registry = await deployment.startRegistry(current);
    await upgrade.round('the registry upgraded', [registry]);
    await upgrade.replace(0, current, registry);
    await upgrade.round('one gateway upgraded', [registry]);
    await upgrade.replace(1, current, registry);
    await upgrade.round('all upgraded', [registry]);
    await upgrade.end();
    await registry.stop();
  });

  void t.test('a registry of the previous release with gateways of this one', { buffered: true }, async (t) => {
    const deployment = await startMixedDeployment(t, null);
    const registry = await deployment.startRegistry(former);
    const upgrade = new Upgrade(t, deployment);
    await upgrade.begin(registry, [former, current]);
    await upgrade.round('one gateway of each release', [registry]);
    await upgrade.replace(0, current, registry);
    await upgrade.round('gateways of this release', [registry]);
    await upgrade.end();
    await registry.stop();
  });

  void t.test('a registry of each release on one PostgreSQL', { ...postgresAlone, buffered: true }, async (t) => {
    const deployment = await startMixedDeployment(t, await createPostgresDatabase(t));
    const before = await deployment.startRegistry(former);
    const upgrade = new Upgrade(t, deployment);
    await upgrade.begin(before, [former, current]);
    const registry = await deployment.startRegistry(current);
    await upgrade.round('the former registry projects', [before, registry]);
    await before.stop();
    await upgrade.round('the registry of this release has taken over', [registry]);
    await upgrade.end();
    await registry.stop();
  });

  void t.test('services that have migrated stay when the gateways go back', { buffered: true }, async (t) => {
    const site = await openSite(t, {
      signs: true,
      settings: { keyStore: { redis: { commandTimeoutMilliseconds: 5000 } } },
    });
    const settings = { services: { listen: { port: 0 }, database: { url: `sqlite:${site.file('services.db')}` } } };
    const before = await site.start('services', settings, { root: former });
    await before.stop();
    const services = await site.start('services', settings);
    const registry = await site.startRegistry();
    const upstreams = { transactions: { url: `http://127.0.0.1:${services.ports.api ?? 0}` } };
    const gateway = await site.startGateway({ upstreams }, { root: former });
    const merchant = { name: 'Shop', status: 'ACTIVE', goLive: true };
    const { data } = await registry.call<{ id: string }>('POST', '/merchants', merchant);
    const created = await registry.call<{ key: string }>('POST', `/merchants/${data.id}/keys`, { environment: 'live' });
    const { key } = created.data;
    while ((await gateway.decide(key)) === 401) await sleep(20);
    t.equal(await gateway.decide(key), 200, 'they serve a gateway of the former release');
    t.same(await services.stop(), [0, null]);
    await t.rejects(
      site.start('services', settings, { root: former }),
      /written by a newer version/,
      'services of the former release do not start any more',
    );
  });
});
