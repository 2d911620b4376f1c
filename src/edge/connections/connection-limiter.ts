import type { Socket } from 'node:net';
import type { Place } from '../request/connection-facts.js';
import { LinkedList, type Links } from './linked-list.js';
import { type Source, Sources } from './sources.js';

/** Why a connection was closed to make room for another one. */
export const evictions = ['without_key', 'merchant_share'] as const;

/** One of them. */
export type Eviction = (typeof evictions)[number];

/** What the log says of a request on such a connection. */
export const evictionDetail =
  'the gateway closed its connection to make room for another one: the request was not accepted yet, or its body had not arrived';

/** While fewer than this share of all connections never had an accepted request, most of them are callers that are about to ask. */
const newcomerShare = 1 / 16;

/** How many connections a listener may have open, and how many of them one source. */
export interface ConnectionCounts {
  readonly connections: number;
  readonly connectionsPerAddress: number;
}

/**
 * Decides who may connect while a listener is full, so that callers without a key keep out nobody who has one. A new connection
 * makes an old one close:
 * - first one that never had an accepted request: from the source that has most of these, the oldest;
 * - otherwise, of a merchant that holds more than half of all, the one that is idle for longest, or waits for longest for the body of
 *   its request. While few connections are without an accepted request this comes first: newcomers would close each other.
 * A connection whose current request is accepted and there as a whole never closes for another one. Trusted proxies speak for many callers: they are no
 * source, and their connections close only for the share of the merchant whom they served last.
 */
export class ConnectionLimiter {
  readonly #limits: ConnectionCounts;
  readonly #tables: Tables;
  readonly #evicted: Record<Eviction, number> = { without_key: 0, merchant_share: 0 };

  constructor(limits: ConnectionCounts) {
    this.#limits = limits;
    this.#tables = { open: 0, sources: new Sources(), holders: new Holders(limits.connections) };
  }

  /** How many may be open. */
  get limit(): number {
    return this.#limits.connections;
  }

  /** How many connections were closed to make room, by reason. */
  get evicted(): Readonly<Record<Eviction, number>> {
    return { ...this.#evicted };
  }

  /** How many open connections never had an accepted request; those of trusted proxies do not count. */
  get withoutKey(): number {
    return this.#tables.sources.withoutKey;
  }

  /** Says whether a source has as many connections as it may. */
  isFull(source: string): boolean {
    return this.#tables.sources.openOf(source) >= this.#limits.connectionsPerAddress;
  }

  /** Gives a new connection its place, until that is released. Null: none is free, and nothing may be closed. */
  admit(socket: Socket): ConnectionPlace | null {
    const tables = this.#tables;
    if (tables.open >= this.#limits.connections && !this.#makeRoom(tables)) return null;
    return new ConnectionPlace(tables, socket);
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

/** What the places of a listener share. */
interface Tables {
  /** How many places are taken. */
  open: number;
  readonly sources: Sources<ConnectionPlace>;
  readonly holders: Holders<ConnectionPlace>;
}

/** The place of an open connection, which counts for its source or for the merchant whom it served last. */
export class ConnectionPlace implements Links<ConnectionPlace>, Place {
  previous: ConnectionPlace | null = null;
  next: ConnectionPlace | null = null;
  /**
   * What is closed. Over TLS that is the TLS socket, once there is one: the process crashes when a TCP socket is taken away from
   * below a TLS socket that has something to write.
   */
  socket: Socket;
  readonly #tables: Tables;
  /** Null before it is known, and for a trusted proxy. */
  #source: Source<ConnectionPlace> | null = null;
  /** Null before the first accepted request. */
  #holder: Holder<ConnectionPlace> | null = null;
  /** Whether the current request is accepted and there as a whole. */
  #isInUse = false;
  #isReleased = false;
  #isEvicted = false;

  constructor(tables: Tables, socket: Socket) {
    this.#tables = tables;
    this.socket = socket;
    tables.open += 1;
  }

  /** Whether it was closed to make room for another connection. */
  get isEvicted(): boolean {
    return this.#isEvicted;
  }

  /** Counts the connection for its source, once that is known. Not called for trusted proxies. */
  countFor(source: string): void {
    if (!this.#isReleased) this.#source = this.#tables.sources.add(source, this);
  }

  /** The head of a request has arrived: of the idle connections of its merchant, this one closes last from now on. */
  requestBegan(): void {
    if (this.#isReleased || this.#isInUse || this.#holder === null) return;
    this.#holder.idle.remove(this);
    this.#holder.idle.append(this);
  }

  /**
   * The current request is accepted: the connection counts for its merchant.
   * @param hasBody false: it closes for no other one from now on
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

  /** The body of an accepted request has arrived, or so much of it that it is sent: the connection closes for no other one now. */
  bodyArrived(): void {
    if (this.#isReleased || this.#isInUse) return;
    this.#leaveList();
    this.#isInUse = true;
  }

  /** A request is over, whether it was accepted or not. */
  requestEnded(): void {
    if (this.#isReleased || !this.#isInUse) return;
    this.#isInUse = false;
    this.#holder?.idle.append(this);
  }

  /** Gives the place back; a second time does nothing. */
  release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#leaveList();
    this.#tables.open -= 1;
    if (this.#holder !== null) this.#tables.holders.remove(this.#holder);
    if (this.#source !== null) this.#tables.sources.closed(this.#source);
  }

  /** Closes the connection; its place is free at once. */
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

/** A merchant, and the open connections whose last accepted request was its own. */
interface Holder<Connection extends Links<Connection>> {
  readonly merchantId: string;
  /** How many are open. */
  open: number;
  /** Those without an accepted request in flight; the one that is idle for longest stands first. */
  readonly idle: LinkedList<Connection>;
}

/** The merchants of a listener's connections, and which of them holds more than half of all. Each step takes constant time. */
class Holders<Connection extends Links<Connection>> {
  readonly #all: number;
  readonly #byMerchant = new Map<string, Holder<Connection>>();
  /** Nobody else can hold more than half. */
  #most: Holder<Connection> | null = null;

  /** @param all how many connections the listener may have */
  constructor(all: number) {
    this.#all = all;
  }

  /** The connection that is idle for longest, of a merchant with more than half of all; null where there is none. */
  get longestIdleOfMost(): Connection | null {
    return this.#most?.idle.first ?? null;
  }

  /** Counts a connection for the merchant whom it serves from now on. */
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

  /** Says that a connection is closed, or serves another merchant from now on. */
  remove(holder: Holder<Connection>): void {
    holder.open -= 1;
    if (holder.open === 0) this.#byMerchant.delete(holder.merchantId);
    if (this.#most === holder && !this.#hasMost(holder)) this.#most = null;
  }

  #hasMost({ open }: Holder<Connection>): boolean {
    return open * 2 > this.#all;
  }
}
