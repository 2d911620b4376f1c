import type { SeenGateway, SeenGateways } from '../../../gateway/store-ports.js';
import { readAcknowledgement } from '../gateway-records.js';
import { isProof, noSeals } from '../seal.js';
import type { Seals } from '../seal.js';

/** The last sign of life of an acknowledgement. */
interface SignOfLife {
  /** The number of signs of life up to then, of all gateways. */
  readonly count: number;
  /** On the monotonic clock, in milliseconds. */
  readonly at: number;
  /** Arrival of the notice, in milliseconds since 1970; null if the acknowledgement was found by a scan. */
  readonly noticedAt: number | null;
}

/** Where acknowledgements are stored, and whether notices of their writes arrive. */
export interface DirectorySource {
  /** The prefix of every acknowledgement's name; the gateway's instance id follows. */
  readonly prefix: string;
  readonly connected: boolean;
  /** While this number is unchanged, no notice was missed. */
  readonly epoch: number;
  /** Resolves once the notices of all earlier writes have been handled. */
  catchUp(): Promise<void>;
  /** The names of all acknowledgements. One that is added or removed during the scan may be absent. */
  names(): AsyncIterable<string>;
  /**
   * The texts in the order of the names; null for a missing one.
   * Also reads the generation of the meta record, at the same time or earlier; null if it names no generation, or not
   * these servers.
   */
  read(names: readonly string[]): Promise<DirectoryTexts>;
  /** Verifies the seals of acknowledgements. */
  readonly seals?: Seals;
}

/** Texts of acknowledgements, and the generation of the store's meta record. */
export interface DirectoryTexts extends Pick<SeenGateways, 'generation' | 'isSealed'> {
  readonly texts: readonly (string | null)[];
}

/** The result of one read. */
export interface DirectoryList extends Pick<SeenGateways, 'generation' | 'isSealed'> {
  /** Whether all notices sent before the read have been handled. */
  readonly isFresh: boolean;
  readonly gateways: readonly SeenGateway[];
}

/**
 * The gateways that acknowledge.
 * Redis sends a notice of each acknowledgement. The registry therefore finds a handful of gateways without scanning a
 * million records, and overlooks none. Each notice is a sign of life, whatever the read returns.
 */
export class GatewayDirectory {
  readonly #source: DirectorySource;
  readonly #monotonic: () => number;
  readonly #now: () => number;
  /** Known acknowledgements by name, each with its last sign of life. */
  readonly #known = new Map<string, SignOfLife>();
  #signsOfLife = 0;
  #isComplete = false;
  /** The start of counting silence, on the monotonic clock. */
  #since: number;
  #next: { readonly notice: Promise<void>; readonly settle: () => void } | null = null;

  constructor(source: DirectorySource, monotonic: () => number = () => performance.now(), now = Date.now) {
    this.#source = source;
    this.#monotonic = monotonic;
    this.#now = now;
    this.#since = monotonic();
  }

  /** Handles notices of these names: acknowledgements among them were written or removed. */
  received(names: readonly string[]): void {
    const acknowledgements = names.filter((name) => name.startsWith(this.#source.prefix));
    if (acknowledgements.length === 0) return;
    this.#recordSignOfLife(acknowledgements, this.#now());
    this.#next?.settle();
    this.#next = null;
  }

  /** Resolves at the next notice of an acknowledgement. */
  next(): Promise<void> {
    if (this.#next === null) {
      let settle = (): void => undefined;
      const notice = new Promise<void>((resolve) => (settle = resolve));
      this.#next = { notice, settle };
    }
    return this.#next.notice;
  }

  /** Notices of acknowledgements may have been missed. */
  missed(): void {
    this.#isComplete = false;
    this.#since = this.#monotonic();
  }

  /** Every gateway with an acknowledgement, and every gateway of the roster. */
  async list(roster: readonly string[]): Promise<DirectoryList> {
    const source = this.#source;
    const { seals = noSeals } = source;
    const [began, epoch, isConnected] = [this.#monotonic(), source.epoch, source.connected];
    if (isConnected) await source.catchUp();
    if (!this.#isComplete) await this.#scan();
    const askedFor = new Set(roster.map((id) => source.prefix + id));
    // The silence of a gateway that has given no sign of life counts from now.
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
      // Keep a gateway that announced itself while this read was in flight: its key may have been written after the
      // read. Keep a gateway of the roster, too. It may use its cache although its acknowledgement was lost, so its
      // last sign of life must stay known.
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
    // Acknowledgements written while no notices arrived may have been missed. The next call then scans again.
    this.#isComplete = connected && this.#source.connected && this.#source.epoch === epoch;
  }
}
