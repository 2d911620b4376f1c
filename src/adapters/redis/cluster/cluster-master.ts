import type { Redis } from 'ioredis';
import { connectNode, isSecure } from '../connection.js';
import type { RedisAddress } from '../connection.js';
import { InvalidationListener } from '../server/invalidation-listener.js';
import type { InvalidationEvents } from '../server/invalidation-listener.js';
import { SameServer } from '../server/same-server.js';
import { readView } from './cluster-view.js';
import type { ClusterNode, ClusterView } from './cluster-view.js';

/** What is heard of a master. */
export interface MasterEvents extends InvalidationEvents {
  /** It can be asked, or asked again. */
  readonly onReady: () => void;
  /** One of its connections was lost: the next one may lead to another server. */
  readonly onLost: () => void;
}

/** One master of a Cluster: a connection to ask it by, and one to hear its changes. */
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
      onDeaf: () => {
        if (!this.#isClosed) events.onDeaf();
      },
    });
  }

  /** Stands for the time since it was last listened to anew, or flushed: what was seen of it before says nothing. */
  get session(): object {
    return this.#session;
  }

  /** Whether its changes are heard and it can be asked. */
  get isUp(): boolean {
    return this.#listener.hearing && this.#same.holds && this.commands.status === 'ready';
  }

  /** Its run id; null where it does not say. */
  get runId(): string | null {
    return this.#same.facts?.runId ?? null;
  }

  /** What it does when it is full; null where it does not say. */
  get policy(): string | null {
    return this.#same.facts?.policy ?? null;
  }

  /** Whether a redirection to this place means this master. */
  isAt(place: string): boolean {
    const colon = place.lastIndexOf(':');
    return Number(place.slice(colon + 1)) === this.node.port && this.node.hosts.includes(place.slice(0, colon));
  }

  /** What it sees of its Cluster at this moment. */
  view(): Promise<ClusterView> {
    return viewOf(this.commands, this.#address, this.node);
  }

  /** Resolves when every notice has been heard that it had sent before it got this question. */
  catchUp(): Promise<void> {
    return this.#listener.catchUp();
  }

  close(): void {
    this.#isClosed = true;
    this.commands.disconnect();
    this.#listening.disconnect();
  }
}

/** What the node at the other end sees of its Cluster. */
export async function viewOf(
  redis: Redis,
  address: RedisAddress,
  { host, port }: { host: string; port: number },
): Promise<ClusterView> {
  const [info, nodes] = await Promise.all([redis.call('CLUSTER', 'INFO'), redis.call('CLUSTER', 'NODES')]);
  return readView(String(info), String(nodes), { host, port, secure: isSecure(address) });
}
