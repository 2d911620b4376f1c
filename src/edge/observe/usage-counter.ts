import type { GeoLocation } from '../../gateway/ports.js';
import { claimedHost } from '../../policy/origins.js';
import { dayMilliseconds, hourMilliseconds, type RefusalDetail } from '../../usage/batch.js';
import type { Exchange } from '../request/exchange.js';
import { type KeyOwner, loggedPath } from './access-log.js';
import { noRoom, RowLists } from './row-lists.js';

/**
 * Maximum number of keys that are counted separately between two batches (messages to the registry). The requests of
 * further keys are counted together.
 */
const mostKeys = 200_000;
/**
 * Maximum number of separately counted keys whose record was not found. Their requests were denied before the key
 * look-up, and the later look-up for the log found no record. These keys may be made up, so they must not use up the
 * room for keys that exist.
 */
const mostKeysNotFound = 1_000;
const mostAddressesOfKey = 64;
const mostAgentsOfKey = 16;
const mostHostsOfMerchant = 64;
/**
 * Maximum number of rows in each of the tables by address, by User-Agent and by host, for all keys and merchants
 * together.
 */
const mostRows = 250_000;
/** Maximum number of denied or failed requests, of all merchants together, whose details are kept. */
const mostRefusals = 2_000;
/**
 * Maximum number of denied or failed requests of one merchant whose details are kept. The details of one merchant must
 * fit into one message to the registry.
 */
const mostRefusalsOfMerchant = 20;
const longestAgent = 256;
const longestHost = 256;

/** The owner number (index in a `UsageTally`) under which requests without a known key are counted together. */
export const withoutKey = 0;

/** The measured values of a request that are counted in addition to its code. */
type Measured = Pick<Exchange, 'duration' | 'requestBodyBytes' | 'responseBodyBytes'>;
const unmeasured: Measured = { duration: 0, requestBodyBytes: 0, responseBodyBytes: 0 };

/**
 * Counts the requests of one process for the registry. Each request is counted once, when its access log line is
 * written. The timestamp of the line determines the hour for which the request counts. The counts by code are exact.
 * The memory for addresses, User-Agents, hosts and refusals is bounded, so some of their counts can be dropped.
 */
export class UsageCounter {
  #tally = new UsageTally();

  /** Returns the counts since the last call, and starts counting from zero. Null if nothing was counted. */
  take(): UsageTally | null {
    if (this.#tally.codes.isEmpty) return null;
    const taken = this.#tally;
    this.#tally = new UsageTally();
    return taken;
  }

  /** Counts a request that has an access log line of its own. */
  count(exchange: Exchange, { credential }: KeyOwner): void {
    const tally = this.#tally;
    const { data, found, outcome } = exchange;
    const { receivedAt: at } = data;
    const owner =
      credential === null
        ? tally.ownerNotFound(found.exposedLookupId)
        : (tally.owners.get(credential.keyId) ?? tally.addOwner(credential.keyId, credential.merchantId));
    tally.addCode(owner, at, outcome, 1, exchange);
    const isAccepted = outcome === 'accepted';
    tally.addAddress(owner, at, found.clientAddress?.text ?? null, found.location, 1, isAccepted);
    if (isAccepted) tally.addAgent(owner, at, data.headers.userAgent[0] ?? '');
    if (credential === null) return;
    const origin = found.facts?.origin;
    if (origin && origin.header !== 'host')
      tally.addHost(credential.merchantId, at, `${origin.header} ${claimedHost(origin)}`, isAccepted);
    if (!isAccepted && outcome !== 'client_closed')
      tally.addRefusal(credential.merchantId, refusalOf(exchange, credential.keyId));
  }

  /**
   * Counts the requests without a known key that one access log line covers. Several requests share the line, or the
   * line is about a single request that the HTTP parser rejected.
   * @param at time of the line, in milliseconds since 1970
   * @param address null if unknown, or if the requests came from several addresses
   */
  countWithoutKey(
    codes: Iterable<readonly [code: string, count: number]>,
    at: number,
    address: string | null,
    location: GeoLocation | null = null,
  ): void {
    for (const [code, count] of codes) {
      this.#tally.addCode(withoutKey, at, code, count, unmeasured);
      this.#tally.addAddress(withoutKey, at, address, location, count, false);
    }
  }
}

function refusalOf({ data, found, outcome, status }: Exchange, keyId: string): RefusalDetail {
  const origin = outcome === 'origin_not_allowed' ? (found.facts?.origin ?? null) : null;
  return {
    ...{ at: data.receivedAt, code: outcome, status, method: data.method, path: loggedPath(data.target) },
    ...{ address: found.clientAddress?.text ?? null, keyId, requestId: found.id },
    header: origin && { name: origin.header, value: claimedHost(origin).slice(0, longestHost) },
  };
}

/** The details of a merchant's denied or failed requests. `number` identifies the merchant in `UsageTally.hosts`. */
export interface MerchantTally {
  readonly number: number;
  readonly refusals: RefusalDetail[];
}

/**
 * The counts of one process between two calls of `UsageCounter.take`. Each count belongs to an owner: a key, or all
 * requests without a known key.
 */
export class UsageTally {
  /**
   * The owner number of each key, by key id. The key id of a key without a found record (`mostKeysNotFound`) is
   * unknown, so its look-up id (hash of the key) is used instead.
   */
  readonly owners = new Map<string, number>();
  /**
   * The id of each owner, by owner number: the key id, or the look-up id (hash of the key) of a key without a found
   * record. Null for the owner of all requests without a known key, and for the owner of all keys beyond `mostKeys`.
   */
  readonly ids: (string | null)[] = [null];
  /**
   * The merchant of each owner, by owner number. Null for a key without a found record, and for an owner whose id in
   * `ids` is null.
   */
  readonly merchantIds: (string | null)[] = [null];
  readonly merchants = new Map<string, MerchantTally>();
  /**
   * Counters by code and hour: requests, total duration, longest duration, request body bytes, response body bytes.
   * Durations are in milliseconds.
   */
  readonly codes = new RowLists(hourMilliseconds, 5);
  /**
   * Counters by address and day: refused requests, accepted requests, time of the last request, time of the last
   * accepted one.
   */
  readonly addresses = new RowLists<GeoLocation>(dayMilliseconds, 4, mostAddressesOfKey, mostRows);
  /** Counter by User-Agent and day: accepted requests. */
  readonly agents = new RowLists(dayMilliseconds, 1, mostAgentsOfKey, mostRows);
  /**
   * Counters by day and by host: refused requests, accepted requests. The host is the one in Origin or Referer, and the
   * label also contains the name of that header. A request whose origin is only its Host header is not counted here.
   * The owners of these rows are merchants, not keys.
   */
  readonly hosts = new RowLists(dayMilliseconds, 2, mostHostsOfMerchant, mostRows);
  readonly dropped = { refusals: 0, rows: 0 };
  #notFound = 0;
  #refusals = 0;
  /** The owner number shared by all keys beyond the first `mostKeys`; null until there are more keys. */
  #others: number | null = null;

  /**
   * Returns the owner number for a request without a known key.
   * @param lookupId the hash of the key, if the request was denied before the key look-up (`Findings.exposedLookupId`);
   *   otherwise null
   */
  ownerNotFound(lookupId: string | null): number {
    if (lookupId === null) return withoutKey;
    const known = this.owners.get(lookupId);
    if (known !== undefined) return known;
    if (this.#notFound >= mostKeysNotFound) return withoutKey;
    this.#notFound += 1;
    return this.addOwner(lookupId, null);
  }

  /**
   * Adds an owner, and returns its number. Beyond `mostKeys`, returns the number that all further keys share.
   * @param id a key id, or a look-up id (hash of a key)
   * @param merchantId the merchant of the key; null for a look-up id
   */
  addOwner(id: string, merchantId: string | null): number {
    if (this.ids.length > mostKeys) return (this.#others ??= this.#append(null, null));
    const owner = this.#append(id, merchantId);
    this.owners.set(id, owner);
    return owner;
  }

  addCode(owner: number, at: number, code: string, count: number, measured: Measured): void {
    const { codes } = this;
    const place = codes.rowOf(owner, at, code);
    const { duration } = measured;
    codes.add(place, count);
    codes.add(place + 1, duration);
    codes.raise(place + 2, duration);
    codes.add(place + 3, measured.requestBodyBytes);
    codes.add(place + 4, measured.responseBodyBytes);
  }

  addAddress(
    owner: number,
    at: number,
    address: string | null,
    location: GeoLocation | null,
    count: number,
    isAccepted: boolean,
  ): void {
    const { addresses } = this;
    const place = addresses.rowOf(owner, at, address, location);
    if (place === noRoom) this.dropped.rows += count;
    addresses.add(place + Number(isAccepted), count);
    addresses.raise(place + 2, at);
    if (isAccepted) addresses.raise(place + 3, at);
  }

  addAgent(owner: number, at: number, agent: string): void {
    const place = this.agents.rowOf(owner, at, agent.slice(0, longestAgent));
    if (place === noRoom) this.dropped.rows += 1;
    this.agents.add(place, 1);
  }

  addHost(merchantId: string, at: number, host: string, isAccepted: boolean): void {
    const { number } = this.#merchant(merchantId);
    const place = this.hosts.rowOf(number, at, host.slice(0, longestHost));
    if (place === noRoom) this.dropped.rows += 1;
    this.hosts.add(place + Number(isAccepted), 1);
  }

  /**
   * Stores the details of a denied or failed request. If there is no room, the new details replace the merchant's
   * oldest ones. If the merchant has no older details, the new ones are dropped.
   */
  addRefusal(merchantId: string, detail: RefusalDetail): void {
    const { refusals } = this.#merchant(merchantId);
    if (this.#refusals >= mostRefusals && refusals.length === 0) {
      this.dropped.refusals += 1;
      return;
    }
    refusals.push(detail);
    if (refusals.length <= mostRefusalsOfMerchant && this.#refusals < mostRefusals) this.#refusals += 1;
    else {
      refusals.shift();
      this.dropped.refusals += 1;
    }
  }

  #merchant(merchantId: string): MerchantTally {
    let merchant = this.merchants.get(merchantId);
    if (merchant === undefined) {
      merchant = { number: this.merchants.size, refusals: [] };
      this.merchants.set(merchantId, merchant);
    }
    return merchant;
  }

  #append(id: string | null, merchantId: string | null): number {
    this.merchantIds.push(merchantId);
    return this.ids.push(id) - 1;
  }
}
