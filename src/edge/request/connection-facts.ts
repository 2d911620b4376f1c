import type { Socket } from 'node:net';
import type { IpAddress } from '../../policy/ip-address.js';

/**
 * The slot of a connection within the connection limits of its listener. Requests report their progress to the slot.
 * This progress determines whether the connection can be evicted.
 */
export interface ConnectionPermit {
  /** The socket to close on eviction. Over TLS, this is the TLS socket, once it exists. */
  socket: Socket;
  /** Whether the connection was evicted to make room for another one. */
  readonly isEvicted: boolean;
  /** Whether a request on the connection was accepted. */
  readonly hasAccepted: boolean;
  /** Called when the head of a request has arrived. */
  requestBegan(): void;
  /**
   * Called when the current request is accepted.
   * @param hasBody whether the request has a body; if so, `bodyArrived` reports its arrival
   */
  accepted(merchantId: string, hasBody: boolean): void;
  /** Called when the body of an accepted request has arrived, or enough of the body to start forwarding. */
  bodyArrived(): void;
  /** Called when a request has ended, accepted or not. */
  requestEnded(): void;
}

/**
 * Facts about a connection, shared by all of its requests. They are read early, because a closed socket no longer has
 * them.
 */
export interface ConnectionFacts {
  /**
   * The source address in the PROXY header. If no PROXY header names an address, the peer address of the socket. Null
   * if the socket was already closed.
   */
  readonly remote: IpAddress | null;
  /** Where `remote` comes from. */
  readonly via: 'peer' | 'proxy-protocol';
  /** The port of `remote`; null if unknown. */
  readonly port: number | null;
  /**
   * Whether forwarding headers on this connection are trusted if `remote` is a trusted proxy. False if the PROXY header
   * has no address. In that case, `remote` is the load balancer, and the unknown client behind the load balancer could
   * forge its address with X-Forwarded-For.
   */
  readonly mayForward: boolean;
  /**
   * The slot of the connection in the limits of its listener. Null for a connection without such limits, as on the
   * management listener.
   */
  readonly place: ConnectionPermit | null;
  /** Result of the TLS handshake: a JSON object with field names of the Elastic Common Schema; null without TLS. */
  readonly tls: string | null;
  /**
   * Whether this connection has used its free look-up. While the throttle limits look-ups of unknown keys, the first
   * such look-up on each connection is free: it takes nothing from the look-up budgets. Set by the throttle.
   */
  usedFirstLookup: boolean;
}

/** Where a connection comes from, according to its PROXY header or its socket. */
export type ConnectionOrigin = Pick<ConnectionFacts, 'remote' | 'via' | 'port' | 'mayForward' | 'place'>;
