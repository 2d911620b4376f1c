import type { Redis } from 'ioredis';
import { connectNode, isSecure } from '../connection.js';
import type { RedisAddress } from '../connection.js';
import { InvalidationListener } from '../server/invalidation-listener.js';
import type { InvalidationEvents } from '../server/invalidation-listener.js';
import { SameServer } from '../server/same-server.js';
import { readView } from './cluster-view.js';
import type { ClusterNode, ClusterView } from './cluster-view.js';

/** Events of one master of the Cluster. */
export interface MasterEvents extends InvalidationEvents {
  /**
   * Called when the connections for commands and for invalidation messages are ready and lead to the same server. Also
   * called after each reconnect.
   */
  readonly onReady: () => void;
  /** Called when a connection was lost. A new connection may lead to another server. */
  readonly onLost: () => void;
}

/** One master of a Cluster, with one connection for commands and one for invalidation messages (CLIENT TRACKING). */
export class ClusterMaster {
  readonly node: ClusterNode;
  readonly commands: Redis;
  readonly #address: RedisAddress;
  readonly #listening: Redis;
  readonly #listener: InvalidationListener;
  readonly #same: SameServer;
  #session: object = {};
  #isClosed = false;

  constructor(
    node: ClusterNode,
    address: RedisAddress,
    prefixes: readonly string[],
    events: MasterEvents,
    onError: (error: Error) => void,
  ) {
    this.node = node;
    this.#address = address;
    const report = (error: Error): void => {
      if (!this.#isClosed) onError(error);
    };
    this.commands = connectNode(address, node, report);
    this.#listening = connectNode(address, node, report);
    for (const redis of [this.commands, this.#listening]) {
      redis.on('close', () => {
        this.#session = {};
        if (!this.#isClosed) events.onLost();
      });
    }
    this.#same = new SameServer(this.commands, this.#listening, events.onReady);
    this.#listener = new InvalidationListener(this.#listening, prefixes, {
      onChanged: events.onChanged,
      onEverythingChanged: () => {
        this.#session = {};
        events.onEverythingChanged();
      },
      onListening: () => {
        this.#session = {};
        events.onListening();
      },
      onDisconnected: () => {
        if (!this.#isClosed) events.onDisconnected();
      },
    });
  }

  /**
   * An object that stands for the current session with the master. A lost connection, a restart of CLIENT TRACKING or a
   * flush begins a new session, with a new object. Data that was read in an earlier session must be read again.
   */
  get session(): object {
    return this.#session;
  }

  /** Whether invalidation messages arrive, commands can be sent, and both connections lead to the same server. */
  get isUp(): boolean {
    return this.#listener.connected && this.#same.holds && this.commands.status === 'ready';
  }

  /** The master's run id from INFO; null if INFO omits it or a connection is not ready. */
  get runId(): string | null {
    return this.#same.facts?.runId ?? null;
  }

  /** The eviction policy (`maxmemory-policy`) from INFO; null if INFO omits it or a connection is not ready. */
  get policy(): string | null {
    return this.#same.facts?.policy ?? null;
  }

  /** Whether this master has the address `host:port`, as found in a redirection. */
  isAt(place: string): boolean {
    const colon = place.lastIndexOf(':');
    return Number(place.slice(colon + 1)) === this.node.port && this.node.hosts.includes(place.slice(0, colon));
  }

  /** Reads this master's current view of the Cluster: its masters and their slots. */
  view(): Promise<ClusterView> {
    return viewOf(this.commands, this.#address, this.node);
  }

  /** Sends a PING. Resolves when all invalidation messages that preceded the reply have been handled. */
  catchUp(): Promise<void> {
    return this.#listener.catchUp();
  }

  close(): void {
    this.#isClosed = true;
    this.commands.disconnect();
    this.#listening.disconnect();
  }
}

/** Reads the masters and slots of the Cluster, as the node of this connection reports them. */
export async function viewOf(
  redis: Redis,
  address: RedisAddress,
  { host, port }: { host: string; port: number },
): Promise<ClusterView> {
  const [info, nodes] = await Promise.all([redis.call('CLUSTER', 'INFO'), redis.call('CLUSTER', 'NODES')]);
  return readView(String(info), String(nodes), { host, port, secure: isSecure(address) });
}
