import type { Socket } from 'node:net';
import type { ConnectionPermit } from '../request/connection-facts.js';
import { LinkedList, type Links } from './linked-list.js';
import { type Source, Sources } from './sources.js';

/**
 * Reasons for evicting a connection: it has had no accepted request, or its merchant holds more than half of all
 * connections.
 */
export const evictions = ['without_key', 'merchant_share'] as const;

/** A reason for evicting a connection. */
export type Eviction = (typeof evictions)[number];

/** `event.reason` in the log line of a request whose connection was evicted. */
export const evictionDetail =
  'the limit of connections was reached, so the gateway closed this connection: its request was not accepted yet, or the body of the request had not arrived';

/**
 * A fraction of the connection limit. If fewer connections than this fraction lack an accepted request, they are
 * probably just new. The limiter then first looks for a connection of a merchant that holds more than half of all
 * connections. If it finds none, it evicts a connection without an accepted request.
 */
const newcomerShare = 1 / 16;

/** Maximum number of open connections of a listener, in total and per source. */
export interface ConnectionCounts {
  readonly connections: number;
  readonly connectionsPerAddress: number;
}

/**
 * Admits connections to a listener. While the listener is full, a new connection evicts an old one, so that clients
 * without a key cannot lock out clients with a key:
 * 1. The oldest connection without an accepted request is evicted. Only the source (IPv4 address or IPv6 /64) with the
 *    most of these connections is considered.
 * 2. If no such connection exists, the limiter looks for a merchant with more than half of the listener's connections.
 *    It evicts the merchant's connection that has been idle, or waiting for a request body, for the longest time.
 *
 * While few connections lack an accepted request, rule 2 comes first. Otherwise new connections would evict each other.
 * A connection is never evicted once its current request is accepted and the body, if any, has arrived or is being
 * forwarded. Rule 1 does not apply to connections of a trusted proxy, because the proxy carries many clients. For rule
 * 2, a connection of a proxy counts for the merchant that it served last.
 */
export class ConnectionLimiter {
  readonly #limits: ConnectionCounts;
  readonly #tables: Tables;
  readonly #evicted: Record<Eviction, number> = { without_key: 0, merchant_share: 0 };

  constructor(limits: ConnectionCounts) {
    this.#limits = limits;
    this.#tables = { open: 0, sources: new Sources(), holders: new Holders(limits.connections) };
  }

  /** Maximum number of open connections. */
  get limit(): number {
    return this.#limits.connections;
  }

  /** Number of evicted connections, by reason. */
  get evicted(): Readonly<Record<Eviction, number>> {
    return { ...this.#evicted };
  }

  /** Number of open connections without an accepted request so far, except those of trusted proxies. */
  get withoutKey(): number {
    return this.#tables.sources.withoutKey;
  }

  /** Whether a source (IPv4 address or IPv6 /64) has reached its maximum number of connections. */
  isFull(source: string): boolean {
    return this.#tables.sources.openOf(source) >= this.#limits.connectionsPerAddress;
  }

  /** Admits a new connection and returns its slot. Null if no slot is free and no connection can be evicted. */
  admit(socket: Socket): ConnectionSlot | null {
    const tables = this.#tables;
    if (tables.open >= this.#limits.connections && !this.#makeRoom(tables)) return null;
    return new ConnectionSlot(tables, socket);
  }

  #makeRoom({ sources, holders }: Tables): boolean {
    const withoutKey = sources.oldestOfMost;
    const ofMerchant = holders.longestIdleOfMost;
    const areNewcomers = sources.withoutKey < this.#limits.connections * newcomerShare;
    const victim = areNewcomers ? (ofMerchant ?? withoutKey) : (withoutKey ?? ofMerchant);
    if (victim === null) return false;
    this.#evicted[victim === ofMerchant ? 'merchant_share' : 'without_key'] += 1;
    victim.evict();
    return true;
  }
}

/** Shared state of a listener's connection slots. */
interface Tables {
  /** Number of slots in use. */
  open: number;
  readonly sources: Sources<ConnectionSlot>;
  readonly holders: Holders<ConnectionSlot>;
}

/**
 * The slot of an open connection. While the connection can be evicted, its slot is in a list. This is the list of its
 * source before the first accepted request, and then the list of the merchant that the connection served last.
 */
export class ConnectionSlot implements Links<ConnectionSlot>, ConnectionPermit {
  previous: ConnectionSlot | null = null;
  next: ConnectionSlot | null = null;
  /**
   * The socket to destroy on eviction. Over TLS, this is the TLS socket, once it exists. Destroying the TCP socket
   * below a TLS socket with pending writes crashes the process.
   */
  socket: Socket;
  readonly #tables: Tables;
  /**
   * IPv4 address or IPv6 /64 of the client. Null while unknown, and for a trusted proxy, which carries many clients.
   */
  #source: Source<ConnectionSlot> | null = null;
  /** The merchant of the last accepted request; null before the first one. */
  #holder: Holder<ConnectionSlot> | null = null;
  /**
   * Whether the current request is accepted, and its body, if any, has arrived or is being forwarded. If so, the
   * connection is not evicted.
   */
  #isInUse = false;
  #isReleased = false;
  #isEvicted = false;

  constructor(tables: Tables, socket: Socket) {
    this.#tables = tables;
    this.socket = socket;
    tables.open += 1;
  }

  /** Whether the connection was evicted. */
  get isEvicted(): boolean {
    return this.#isEvicted;
  }

  /** Whether a request on the connection was accepted. */
  get hasAccepted(): boolean {
    return this.#holder !== null;
  }

  /** Counts the connection for its source once the source is known. Not called for trusted proxies. */
  countFor(source: string): void {
    if (!this.#isReleased) this.#source = this.#tables.sources.add(source, this);
  }

  /**
   * Called when a request head has arrived. Moves this connection to the end of its merchant's idle list, so that it is
   * evicted last.
   */
  requestBegan(): void {
    if (this.#isReleased || this.#isInUse || this.#holder === null) return;
    this.#holder.idle.remove(this);
    this.#holder.idle.append(this);
  }

  /**
   * Called when the current request is accepted. The connection now counts for the request's merchant.
   * @param hasBody whether the request has a body. If so, the connection can be evicted until `bodyArrived` is called.
   *   Otherwise, it is not evicted before the request ends.
   */
  accepted(merchantId: string, hasBody: boolean): void {
    if (this.#isReleased) return;
    this.#leaveList();
    this.#isInUse = !hasBody;
    const before = this.#holder;
    if (before?.merchantId !== merchantId) {
      this.#holder = this.#tables.holders.add(merchantId);
      if (before !== null) this.#tables.holders.remove(before);
    }
    if (hasBody) this.#holder?.idle.append(this);
  }

  /**
   * Called when the body of an accepted request has arrived or is being forwarded. From then on, the connection is not
   * evicted before the request ends.
   */
  bodyArrived(): void {
    if (this.#isReleased || this.#isInUse) return;
    this.#leaveList();
    this.#isInUse = true;
  }

  /** Called when a request has ended, whether it was accepted or not. */
  requestEnded(): void {
    if (this.#isReleased || !this.#isInUse) return;
    this.#isInUse = false;
    this.#holder?.idle.append(this);
  }

  /** Releases the slot. A second call has no effect. */
  release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#leaveList();
    this.#tables.open -= 1;
    if (this.#holder !== null) this.#tables.holders.remove(this.#holder);
    if (this.#source !== null) this.#tables.sources.closed(this.#source);
  }

  /** Closes the connection and releases its slot immediately. */
  evict(): void {
    this.release();
    this.#isEvicted = true;
    this.socket.destroy();
  }

  #leaveList(): void {
    if (this.#isInUse) return;
    if (this.#holder !== null) this.#holder.idle.remove(this);
    else if (this.#source !== null) this.#tables.sources.removeWithoutKey(this.#source, this);
  }
}

/**
 * A merchant and the number of its open connections. A connection belongs to the merchant of its last accepted request.
 */
interface Holder<Connection extends Links<Connection>> {
  readonly merchantId: string;
  /** Number of open connections. */
  open: number;
  /**
   * Connections that can be evicted, the longest idle first. They have no accepted request in flight, or the body of
   * their accepted request has not arrived yet.
   */
  readonly idle: LinkedList<Connection>;
}

/**
 * The merchants of a listener's connections, and the merchant that holds more than half of all connections. Each
 * operation is O(1).
 */
class Holders<Connection extends Links<Connection>> {
  readonly #all: number;
  readonly #byMerchant = new Map<string, Holder<Connection>>();
  /** The merchant with more than half of the listener's maximum number of connections; null if there is none. */
  #most: Holder<Connection> | null = null;

  /** @param all maximum number of connections of the listener */
  constructor(all: number) {
    this.#all = all;
  }

  /**
   * The longest idle connection of the merchant that holds more than half of all connections; null without such a
   * merchant.
   */
  get longestIdleOfMost(): Connection | null {
    return this.#most?.idle.first ?? null;
  }

  /** Counts a connection for the merchant that it now serves. */
  add(merchantId: string): Holder<Connection> {
    let holder = this.#byMerchant.get(merchantId);
    if (holder === undefined) {
      holder = { merchantId, open: 0, idle: new LinkedList() };
      this.#byMerchant.set(merchantId, holder);
    }
    holder.open += 1;
    if (this.#hasMost(holder)) this.#most = holder;
    return holder;
  }

  /** Stops counting a connection for a merchant, because the connection was closed or now serves another merchant. */
  remove(holder: Holder<Connection>): void {
    holder.open -= 1;
    if (holder.open === 0) this.#byMerchant.delete(holder.merchantId);
    if (this.#most === holder && !this.#hasMost(holder)) this.#most = null;
  }

  #hasMost({ open }: Holder<Connection>): boolean {
    return open * 2 > this.#all;
  }
}
