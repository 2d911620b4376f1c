import type { Teardown } from '../adapters/redis-server.js';
import { Relay, type Passage } from './relay.js';

/** A server that processes reach through relays: the port where it is, and the one by which others name it. */
export interface Reachable {
  readonly port: number;
  readonly announced: number;
}

/**
 * The way of one process to each Redis server and sentinel: a relay in front of each. What servers say about the addresses of others
 * is changed to the relays' ports, so that there is no other way.
 */
export class Network {
  readonly #relays: ReadonlyMap<number, Relay>;

  private constructor(relays: ReadonlyMap<number, Relay>) {
    this.#relays = relays;
  }

  static async open(t: Teardown, servers: readonly Reachable[]): Promise<Network> {
    const named = new Map<string, string>();
    const pattern = new RegExp(
      `(?<=[:\\n ])(?:${servers.map(({ announced }) => announced).join('|')})(?=[\\r@ ])`,
      'g',
    );
    const rewrite = (bytes: Buffer): Buffer => {
      const text = bytes.toString('latin1');
      const changed = text.replace(pattern, (port) => named.get(port) ?? port);
      return changed === text ? bytes : Buffer.from(changed, 'latin1');
    };
    const relays = new Map<number, Relay>();
    for (const { port, announced } of servers) {
      const relay = await Relay.open(t, () => port, servers.length === 1 ? null : rewrite);
      relays.set(port, relay);
      named.set(String(announced), String(relay.port));
    }
    return new Network(relays);
  }

  /** The port by which this process reaches a server. */
  portOf({ port }: Reachable): number {
    const relay = this.#relays.get(port);
    if (relay === undefined) throw new Error(`there is no relay in front of ${port}`);
    return relay.port;
  }

  /** Opens or closes the way to these servers, or to all. */
  set(passage: Passage, servers: readonly Reachable[] | null = null): void {
    for (const [port, relay] of this.#relays) {
      if (servers === null || servers.some((server) => server.port === port)) relay.set(passage);
    }
  }

  delay(milliseconds: number): void {
    for (const relay of this.#relays.values()) relay.delay(milliseconds);
  }
}
