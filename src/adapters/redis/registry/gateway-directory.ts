import type { SeenGateway, SeenGateways } from '../../../gateway/store-ports.js';
import { readAcknowledgement } from '../gateway-records.js';
import { isProof, noSeals } from '../seal.js';
import type { Seals } from '../seal.js';

/** When something was last heard of an acknowledgement. */
interface Hearing {
  /** How often something had been heard by then. */
  readonly count: number;
  /** On the monotonic clock, in milliseconds. */
  readonly at: number;
  /** In milliseconds since 1970 when a notice came; null where the acknowledgement was only found. */
  readonly noticedAt: number | null;
}

/** Where acknowledgements are, and whether it is heard when one is written. */
export interface DirectorySource {
  /** What the name of every acknowledgement begins with; the gateway's instance id follows. */
  readonly prefix: string;
  readonly hearing: boolean;
  /** Between two looks at the same number nothing was missed. */
  readonly epoch: number;
  /** Resolves when everything has been heard of that was written before. */
  catchUp(): Promise<void>;
  /** The names of all acknowledgements; one that comes or goes meanwhile may be left out. */
  names(): AsyncIterable<string>;
  /**
   * In the order of the names; null for one that is not there any more. With the generation that the meta record names at the
   * same moment, or before; null where it names none, or not these servers.
   */
  read(names: readonly string[]): Promise<DirectoryTexts>;
  /** What acknowledgements are sealed with. */
  readonly seals?: Seals;
}

/** What stands in the store: acknowledgements, and what its meta record says. */
export interface DirectoryTexts extends Pick<SeenGateways, 'generation' | 'isSealed'> {
  readonly texts: readonly (string | null)[];
}

/** What a look found. */
export interface DirectoryList extends Pick<SeenGateways, 'generation' | 'isSealed'> {
  /** Whether every notice has been heard that was sent before the look. */
  readonly isHearing: boolean;
  readonly gateways: readonly SeenGateway[];
}

/**
 * The gateways that acknowledge. Redis tells of each acknowledgement as it is written, so that nobody has to look through a
 * million records for a handful of gateways, and yet none is overlooked. Each notice is a sign of life, whatever is read.
 */
export class GatewayDirectory {
  readonly #source: DirectorySource;
  readonly #monotonic: () => number;
  readonly #now: () => number;
  /** Their names, each with when it was last heard of. */
  readonly #known = new Map<string, Hearing>();
  #heard = 0;
  #isComplete = false;
  /** Since when silence is counted. */
  #since: number;
  #next: { readonly heard: Promise<void>; readonly settle: () => void } | null = null;

  constructor(source: DirectorySource, monotonic: () => number = () => performance.now(), now = Date.now) {
    this.#source = source;
    this.#monotonic = monotonic;
    this.#now = now;
    this.#since = monotonic();
  }

  /** Notices came of these names: acknowledgements among them were written, or taken away. */
  heard(names: readonly string[]): void {
    const acknowledgements = names.filter((name) => name.startsWith(this.#source.prefix));
    if (acknowledgements.length === 0) return;
    this.#hear(acknowledgements, this.#now());
    this.#next?.settle();
    this.#next = null;
  }

  /** Settles when something was next heard. */
  next(): Promise<void> {
    if (this.#next === null) {
      let settle = (): void => undefined;
      const heard = new Promise<void>((resolve) => (settle = resolve));
      this.#next = { heard, settle };
    }
    return this.#next.heard;
  }

  /** Some may have been written that were not heard of. */
  missed(): void {
    this.#isComplete = false;
    this.#since = this.#monotonic();
  }

  /** Every gateway whose acknowledgement stands, and each that is asked for. */
  async list(roster: readonly string[]): Promise<DirectoryList> {
    const source = this.#source;
    const { seals = noSeals } = source;
    const [began, epoch, isHearing] = [this.#monotonic(), source.epoch, source.hearing];
    if (isHearing) await source.catchUp();
    if (!this.#isComplete) await this.#lookThrough();
    const askedFor = new Set(roster.map((id) => source.prefix + id));
    // Of one that was never heard of, silence is counted from now on.
    for (const name of askedFor)
      if (!this.#known.has(name)) this.#known.set(name, { count: 0, at: began, noticedAt: null });
    const names = [...this.#known.keys()];
    const asked = this.#heard;
    const { texts, ...store } = await source.read(names);
    const gateways = names.map((name, index): SeenGateway => {
      const instanceId = name.slice(source.prefix.length);
      const text = texts[index] ?? null;
      const hearing = this.#known.get(name);
      const heardAt = Math.max(hearing?.at ?? began, this.#since);
      // One that was heard of since it was asked for may have been written after it was found to be gone. One of the roster
      // may use what it holds although its acknowledgement was lost: when it was last heard of has to be known.
      if (text === null && !askedFor.has(name) && (hearing?.count ?? 0) <= asked) this.#known.delete(name);
      const read = readAcknowledgement(text);
      const acknowledgement = read?.instanceId === instanceId ? read : null;
      const noticedAt = hearing?.noticedAt ?? null;
      const skew = acknowledgement?.now === undefined || noticedAt === null ? null : acknowledgement.now - noticedAt;
      return {
        ...{ instanceId, acknowledgement, clockSkewMilliseconds: skew },
        isSealed: text !== null && isProof(seals.stateOf(name, text)),
        silentMilliseconds: Math.max(0, began - heardAt),
      };
    });
    return { ...store, gateways, isHearing: isHearing && source.hearing && source.epoch === epoch };
  }

  #hear(names: readonly string[], noticedAt: number | null): void {
    this.#heard += 1;
    const hearing = { count: this.#heard, at: this.#monotonic(), noticedAt };
    for (const name of names) this.#known.set(name, hearing);
  }

  async #lookThrough(): Promise<void> {
    const { epoch, hearing } = this.#source;
    for await (const name of this.#source.names()) if (!this.#known.has(name)) this.#hear([name], null);
    // What was written while nothing could be heard may have been missed; then the next call looks again.
    this.#isComplete = hearing && this.#source.hearing && this.#source.epoch === epoch;
  }
}
