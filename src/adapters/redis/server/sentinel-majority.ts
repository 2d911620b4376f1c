import { lookup } from 'node:dns/promises';
import type { Redis } from 'ioredis';
import { connectSentinel, reopen } from '../connection.js';
import type { HostAndPort, RedisAddress } from '../connection.js';

/**
 * Minimum time between two reconnects. An earlier retry may be useless, because ioredis asks a single sentinel, which
 * may still name the old server.
 */
const reconnectIntervalMilliseconds = 1_000;

/**
 * Queries the sentinels for the master, and requires the same reply from a majority of all configured sentinels. In a
 * network partition, a sentinel that is isolated together with a former master still names that master. So one reply is
 * not enough.
 */
export class SentinelMajority {
  readonly #sentinels: readonly Redis[];
  readonly #masterName: string;
  #reconnectedAt = -Infinity;

  /** @param address must contain sentinels */
  constructor(address: RedisAddress) {
    this.#masterName = address.masterName;
    // Errors are ignored here, because each query handles its own failure.
    this.#sentinels = (address.sentinels ?? []).map((place) => connectSentinel(address, place, () => undefined));
  }

  /**
   * Asks the sentinels which server is the master now. Never rejects. Resolves once a majority of the queries had the
   * same result, or all queries have ended. The result is one of these:
   * - `this`: a majority names the server of this connection
   * - `another`: a majority names a different server
   * - `none`: no majority agreed in time, or the connection changed meanwhile
   */
  async judge(redis: Redis): Promise<'this' | 'another' | 'none'> {
    const { stream } = redis as { readonly stream?: Redis['stream'] };
    const { remoteAddress, remotePort } = (stream ?? {}) as { remoteAddress?: string; remotePort?: number };
    if (remoteAddress === undefined) return 'none';
    const enough = Math.floor(this.#sentinels.length / 2) + 1;
    const votes = { this: 0, another: 0, none: 0 };
    const verdict = await new Promise<'this' | 'another' | 'none'>((resolve) => {
      for (const sentinel of this.#sentinels) {
        void this.#queryMaster(sentinel)
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
   * Requires that a majority of sentinels names the server of this connection as the master, because a former master
   * continues to reply after a failover. If a majority names another server, also reopens the connections (at most once
   * a second).
   * @param others connections to the same server, which are reopened together with `redis`
   * @throws Error if no majority names the server
   */
  async require(redis: Redis, ...others: readonly Redis[]): Promise<void> {
    const named = await this.judge(redis);
    if (named === 'this') return;
    if (named === 'another') this.reconnect([redis, ...others]);
    throw new Error('no majority of the configured sentinels names this server as the master');
  }

  /**
   * Reopens connections, so that they lead to the server that the sentinels name; at most once a second.
   * @returns whether the connections were reopened
   */
  reconnect(connections: readonly Redis[]): boolean {
    if (performance.now() - this.#reconnectedAt < reconnectIntervalMilliseconds) return false;
    this.#reconnectedAt = performance.now();
    for (const redis of connections) reopen(redis);
    return true;
  }

  close(): void {
    for (const sentinel of this.#sentinels) sentinel.disconnect();
  }

  async #queryMaster(sentinel: Redis): Promise<HostAndPort | null> {
    try {
      const reply = await sentinel.call('SENTINEL', 'get-master-addr-by-name', this.#masterName);
      const [host, port] = Array.isArray(reply) ? reply.map(String) : [];
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
  // A sentinel can also name the master by its host name.
  const addresses = await lookup(named.host, { all: true }).catch(() => []);
  return addresses.some((found) => plainAddress(found.address) === plain);
}

function plainAddress(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.)/i, '');
}
