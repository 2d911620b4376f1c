import { lookup } from 'node:dns/promises';
import type { Redis } from 'ioredis';
import { connectSentinel, openAnew } from '../connection.js';
import type { HostAndPort, RedisAddress } from '../connection.js';

const leavingMilliseconds = 1_000;

/**
 * Asks the sentinels who is the master. A majority of all that are configured has to agree: one that was cut off with a former
 * master names it on, and answers whoever is cut off with it.
 */
export class SentinelMajority {
  readonly #sentinels: readonly Redis[];
  readonly #masterName: string;
  #leftAt = -Infinity;

  /** @param address with sentinels */
  constructor(address: RedisAddress) {
    this.#masterName = address.masterName;
    // A failure is that of the question which meets it.
    this.#sentinels = (address.sentinels ?? []).map((place) => connectSentinel(address, place, () => undefined));
  }

  /**
   * Which server a majority named after this was called: that to which this connection leads, another one, or, where no majority
   * has answered alike in time, none. Never rejects, and waits for no sentinel that makes no difference.
   */
  async judge(redis: Redis): Promise<'this' | 'another' | 'none'> {
    const { stream } = redis as { readonly stream?: Redis['stream'] };
    const { remoteAddress, remotePort } = (stream ?? {}) as { remoteAddress?: string; remotePort?: number };
    if (remoteAddress === undefined) return 'none';
    const enough = Math.floor(this.#sentinels.length / 2) + 1;
    const votes = { this: 0, another: 0, none: 0 };
    const verdict = await new Promise<'this' | 'another' | 'none'>((resolve) => {
      for (const sentinel of this.#sentinels) {
        void this.#ask(sentinel)
          .then((named) => (named === null ? null : leadsTo(named, remoteAddress, remotePort)))
          .then((agrees) => {
            const vote = agrees === null ? 'none' : agrees ? 'this' : 'another';
            votes[vote] += 1;
            if (votes[vote] === enough) resolve(vote);
            else if (votes.this + votes.another + votes.none === this.#sentinels.length) resolve('none');
          });
      }
    });
    return redis.stream === stream ? verdict : 'none';
  }

  /**
   * A former master answers on after a failover; the sentinels that made another one its successor know.
   * @param others connections that lead to the same server, and are opened anew with it
   * @throws Error where no majority names the server of this connection
   */
  async require(redis: Redis, ...others: readonly Redis[]): Promise<void> {
    const named = await this.judge(redis);
    if (named === 'this') return;
    if (named === 'another' && performance.now() - this.#leftAt > leavingMilliseconds) {
      this.#leftAt = performance.now();
      for (const one of [redis, ...others]) openAnew(one);
    }
    throw new Error('no majority of the configured sentinels names this server as the master');
  }

  close(): void {
    for (const sentinel of this.#sentinels) sentinel.disconnect();
  }

  async #ask(sentinel: Redis): Promise<HostAndPort | null> {
    try {
      const answer = await sentinel.call('SENTINEL', 'get-master-addr-by-name', this.#masterName);
      const [host, port] = Array.isArray(answer) ? answer.map(String) : [];
      return host === undefined ? null : { host, port: Number(port) };
    } catch {
      return null;
    }
  }
}

async function leadsTo(named: HostAndPort, address: string, port: number | undefined): Promise<boolean> {
  if (named.port !== port) return false;
  const plain = plainAddress(address);
  if (plainAddress(named.host) === plain) return true;
  // Sentinels may announce names.
  const addresses = await lookup(named.host, { all: true }).catch(() => []);
  return addresses.some((found) => plainAddress(found.address) === plain);
}

function plainAddress(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.)/i, '');
}
