import type { SeenGateway, SeenGateways } from '../../../gateway/store-ports.js';
import { readAcknowledgement } from '../gateway-records.js';
import { isProof, noSeals } from '../seal.js';
import type { Seals } from '../seal.js';

/**
 * The last sign that a gateway is alive. This is an invalidation message for its acknowledgement, or a scan that found
 * the acknowledgement. An acknowledgement states which changes the gateway has applied.
 */
interface SignOfLife {
  /** The sequence number of this sign of life, counted over all gateways. */
  readonly count: number;
  /** When the sign was received, in milliseconds of the monotonic clock. */
  readonly at: number;
  /**
   * When Redis' invalidation message announced the acknowledgement of the gateway, in milliseconds since 1970. Null if a
   * scan found the acknowledgement instead.
   */
  readonly noticedAt: number | null;
}

/**
 * Access to the stored acknowledgements and the meta record, and whether invalidation messages arrive. The meta record
 * describes the store and names its generation, which is one unbroken history of changes.
 */
export interface DirectorySource {
  /** The prefix of the Redis keys of acknowledgements; the gateway's instance id follows it. */
  readonly prefix: string;
  readonly connected: boolean;
  /** While this number is unchanged, no invalidation message was missed. */
  readonly epoch: number;
  /** Resolves once the invalidation messages for all earlier writes have been handled. */
  catchUp(): Promise<void>;
  /** Scans for the Redis keys of all acknowledgements. A key that is added or removed during the scan can be absent. */
  names(): AsyncIterable<string>;
  /**
   * Reads the texts of these Redis keys, in the same order. A text is null if the key is missing. At the same time or
   * earlier, reads the generation of the meta record. The generation is null if the meta record names no generation, or
   * does not list exactly the connected servers.
   */
  read(names: readonly string[]): Promise<DirectoryTexts>;
  /** Verifies the seals (HMACs) of acknowledgements. */
  readonly seals?: Seals;
}

/** Texts of acknowledgements, and the generation that the meta record names. */
export interface DirectoryTexts extends Pick<SeenGateways, 'generation' | 'isSealed'> {
  readonly texts: readonly (string | null)[];
}

/** All gateways, and the generation that the meta record names. */
export interface DirectoryList extends Pick<SeenGateways, 'generation' | 'isSealed'> {
  /** Whether all invalidation messages that were sent before the read have been handled. */
  readonly isFresh: boolean;
  readonly gateways: readonly SeenGateway[];
}

/**
 * Lists the gateways that write acknowledgements. Redis reports each write with an invalidation message, so the
 * registry misses no gateway and need not scan a million records. Each message counts as a sign that the gateway is
 * alive, even if the registry then finds no acknowledgement: the gateway may have written it after the read.
 */
export class GatewayDirectory {
  readonly #source: DirectorySource;
  readonly #monotonic: () => number;
  readonly #now: () => number;
  /** The Redis key of each known acknowledgement, with the last sign that its gateway is alive. */
  readonly #known = new Map<string, SignOfLife>();
  #signsOfLife = 0;
  #isComplete = false;
  /**
   * The earliest time from which the silence of a gateway is measured, in milliseconds of the monotonic clock. Messages
   * before this time may have been missed.
   */
  #since: number;
  #next: { readonly notice: Promise<void>; readonly settle: () => void } | null = null;

  constructor(source: DirectorySource, monotonic: () => number = () => performance.now(), now = Date.now) {
    this.#source = source;
    this.#monotonic = monotonic;
    this.#now = now;
    this.#since = monotonic();
  }

  /**
   * Handles invalidation messages for these Redis keys. A message for an acknowledgement means that the gateway has
   * written the acknowledgement, or that the acknowledgement was deleted or has expired.
   */
  received(names: readonly string[]): void {
    const acknowledgements = names.filter((name) => name.startsWith(this.#source.prefix));
    if (acknowledgements.length === 0) return;
    this.#recordSignOfLife(acknowledgements, this.#now());
    this.#next?.settle();
    this.#next = null;
  }

  /** Resolves at the next invalidation message for an acknowledgement. */
  next(): Promise<void> {
    if (this.#next === null) {
      let settle = (): void => undefined;
      const notice = new Promise<void>((resolve) => (settle = resolve));
      this.#next = { notice, settle };
    }
    return this.#next.notice;
  }

  /**
   * Makes the next `list` scan for all acknowledgements. Must be called when invalidation messages may have been
   * missed.
   */
  missed(): void {
    this.#isComplete = false;
    this.#since = this.#monotonic();
  }

  /**
   * Lists every gateway with an acknowledgement, and every gateway of the roster (the registry's own list of gateways).
   */
  async list(roster: readonly string[]): Promise<DirectoryList> {
    const source = this.#source;
    const { seals = noSeals } = source;
    const [began, epoch, isConnected] = [this.#monotonic(), source.epoch, source.connected];
    if (isConnected) await source.catchUp();
    if (!this.#isComplete) await this.#scan();
    const askedFor = new Set(roster.map((id) => source.prefix + id));
    // If a gateway of the roster has given no sign of life yet, its silence is measured from now on.
    for (const name of askedFor)
      if (!this.#known.has(name)) this.#known.set(name, { count: 0, at: began, noticedAt: null });
    const names = [...this.#known.keys()];
    const asked = this.#signsOfLife;
    const { texts, ...store } = await source.read(names);
    const gateways = names.map((name, index): SeenGateway => {
      const instanceId = name.slice(source.prefix.length);
      const text = texts[index] ?? null;
      const lastSign = this.#known.get(name);
      const receivedAt = Math.max(lastSign?.at ?? began, this.#since);
      // Keep a gateway that gave a sign of life during this read: it may have written its acknowledgement after the
      // read. Also keep a gateway of the roster: even if its acknowledgement was lost, the gateway could still use its
      // cache.
      if (text === null && !askedFor.has(name) && (lastSign?.count ?? 0) <= asked) this.#known.delete(name);
      const read = readAcknowledgement(text);
      const acknowledgement = read?.instanceId === instanceId ? read : null;
      const noticedAt = lastSign?.noticedAt ?? null;
      const skew = acknowledgement?.now === undefined || noticedAt === null ? null : acknowledgement.now - noticedAt;
      return {
        ...{ instanceId, acknowledgement, clockSkewMilliseconds: skew },
        isSealed: text !== null && isProof(seals.stateOf(name, text)),
        silentMilliseconds: Math.max(0, began - receivedAt),
      };
    });
    return { ...store, gateways, isFresh: isConnected && source.connected && source.epoch === epoch };
  }

  #recordSignOfLife(names: readonly string[], noticedAt: number | null): void {
    this.#signsOfLife += 1;
    const sign = { count: this.#signsOfLife, at: this.#monotonic(), noticedAt };
    for (const name of names) this.#known.set(name, sign);
  }

  async #scan(): Promise<void> {
    const { epoch, connected } = this.#source;
    for await (const name of this.#source.names()) if (!this.#known.has(name)) this.#recordSignOfLife([name], null);
    // If messages could not arrive during the scan, an acknowledgement may have been missed, so the next call scans
    // again.
    this.#isComplete = connected && this.#source.connected && this.#source.epoch === epoch;
  }
}
