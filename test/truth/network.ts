import type { Teardown } from '../adapters/redis-server.js';
import { Relay, type Passage } from './relay.js';

/** A server behind relays: its own port, and the port by which other servers refer to it. */
export interface Reachable {
  readonly port: number;
  readonly announced: number;
}

/**
 * The network of one process to Redis: a relay in front of each server and sentinel. The relays rewrite the ports that
 * servers announce, so that no connection bypasses a relay.
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

  /** The port of the relay between this process and a server. */
  portOf({ port }: Reachable): number {
    const relay = this.#relays.get(port);
    if (relay === undefined) throw new Error(`there is no relay in front of ${port}`);
    return relay.port;
  }

  /** Sets the passage to these servers; null: to all servers. */
  set(passage: Passage, servers: readonly Reachable[] | null = null): void {
    for (const [port, relay] of this.#relays) {
      if (servers === null || servers.some((server) => server.port === port)) relay.set(passage);
    }
  }

  delay(milliseconds: number): void {
    for (const relay of this.#relays.values()) relay.delay(milliseconds);
  }
}
