import type { LiveGateway } from '../../registry/ports.js';
import Type, { Compile } from '../../typebox/typebox.js';
import { highestRevision } from './revision.js';

const acknowledgement = Compile(
  Type.Object({
    instanceId: Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' }),
    revision: Type.Integer({ minimum: 0, maximum: highestRevision }),
    environment: Type.Enum(['live', 'test']),
    host: Type.String({ maxLength: 255 }),
    startedAt: Type.String({ maxLength: 40 }),
  }),
);

/** Four beats: a gateway that has missed them all has vanished, or is cut off, or its process is stopped. */
const silentMilliseconds = 2_000;

/** When something was last heard of an acknowledgement. */
interface Hearing {
  /** How often something had been heard by then. */
  readonly count: number;
  /** On the monotonic clock, in milliseconds. */
  readonly at: number;
}

/** Where acknowledgements are, and whether it is heard when one is written. */
export interface DirectorySource {
  readonly hearing: boolean;
  /** Between two looks at the same number nothing was missed. */
  readonly epoch: number;
  /** Resolves when everything has been heard of that was written before. */
  catchUp(): Promise<void>;
  /** The names of all acknowledgements; one that comes or goes meanwhile may be left out. */
  names(): AsyncIterable<string>;
  /** In the order of the names; null for one that is not there any more. */
  read(names: readonly string[]): Promise<readonly (string | null)[]>;
}

/**
 * The gateways that live. Redis tells of each acknowledgement as it is written, so that nobody has to look through a
 * million records for a handful of gateways, and yet none that lives is overlooked.
 */
export class GatewayDirectory {
  readonly #source: DirectorySource;
  readonly #monotonic: () => number;
  /** Their names, each with when it was last heard of. */
  readonly #known = new Map<string, Hearing>();
  #heard = 0;
  #complete = false;

  constructor(source: DirectorySource, monotonic: () => number = () => performance.now()) {
    this.#source = source;
    this.#monotonic = monotonic;
  }

  /** These acknowledgements were written, or taken back. */
  heard(names: readonly string[]): void {
    this.#heard += 1;
    const hearing = { count: this.#heard, at: this.#monotonic() };
    for (const name of names) this.#known.set(name, hearing);
  }

  /** Some may have been written that were not heard of. */
  missed(): void {
    this.#complete = false;
  }

  /** Every gateway whose acknowledgement stands at this moment. One that cannot be read counts as having none. */
  async list(): Promise<LiveGateway[]> {
    if (this.#source.hearing) await this.#source.catchUp();
    if (!this.#complete) await this.#lookThrough();
    const names = [...this.#known.keys()];
    const asked = this.#heard;
    if (names.length === 0) return [];
    const texts = await this.#source.read(names);
    return names.flatMap((name, index) => {
      const text = texts[index] ?? null;
      // One that was heard of since it was asked for may have been written after it was found to be gone.
      if (text === null && (this.#known.get(name)?.count ?? 0) <= asked) this.#known.delete(name);
      const gateway = text === null ? null : read(text);
      return gateway === null ? [] : [{ ...gateway, isSilent: this.#isSilent(name) }];
    });
  }

  /** A look through all of them starts the time anew: nobody knows when what it finds was written. */
  #isSilent(name: string): boolean {
    const { at = Infinity } = this.#known.get(name) ?? {};
    return this.#monotonic() - at >= silentMilliseconds;
  }

  async #lookThrough(): Promise<void> {
    const { epoch, hearing } = this.#source;
    for await (const name of this.#source.names()) this.heard([name]);
    // What was written while nothing could be heard may have been missed; then the next call looks again.
    this.#complete = hearing && this.#source.hearing && this.#source.epoch === epoch;
  }
}

function read(text: string): LiveGateway | null {
  try {
    const value: unknown = JSON.parse(text);
    return acknowledgement.Check(value) ? value : null;
  } catch {
    return null;
  }
}
