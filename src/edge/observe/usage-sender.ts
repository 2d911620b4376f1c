import { setTimeout as wait } from 'node:timers/promises';
import type { Clock } from '../../gateway/ports.js';
import { maxMessageBytes, type RegistryChannel } from '../../gateway/channel-ports.js';
import type { Environment } from '../../policy/key-format.js';
import { uniqueId } from '../../telemetry/unique-id.js';
import Type, { Check } from '../../typebox/typebox.js';
import { type BatchHead, BatchWriter } from '../../usage/batch-text.js';
import { UsageCounter } from './usage-counter.js';
import { UsageParts } from './usage-parts.js';

/** The way to the registry for what a gateway process counts. */
export interface UsagePort {
  readonly channel: RegistryChannel;
  /** Name of this process for people. */
  readonly instance: string;
  /** Called with the problem when the registry does not store batches, and with null when it stores them again. */
  readonly onUsageProblem: (problem: string | null) => void;
}

/** Dependencies of the sender. */
interface UsageSenderOptions extends UsagePort {
  readonly environment: Environment;
  readonly clock: Clock;
}

const storedReply = Type.Object({ sequence: Type.Integer({ minimum: 0 }) });
const refusedReply = Type.Object({ problem: Type.String() });

const everyMilliseconds = 1_000;
/** A process that counts nothing sends an empty batch this often, so that the registry knows that it runs. */
const idleMilliseconds = 10_000;
/** Most batches without a reply. Beyond them, requests are counted together until there is room again. */
const mostUnderWay = 16;
const mostKeysOfBatch = 500;

/** After this time without a stored batch, operators are told. A restart of the registry takes less. */
const lateMilliseconds = 30_000;

/** A batch that is kept until the registry has it in SQL. Its text never changes. */
interface KeptBatch {
  readonly sequence: number;
  readonly text: string;
  readonly madeAt: number;
  /** Resolves when the registry has replied or the send has failed; null while the batch waits to be sent (again). */
  sending: Promise<void> | null;
}

/** What was counted in a period, and how much of it is in batches. */
interface Period {
  readonly parts: UsageParts;
  readonly from: number;
  readonly to: number;
}

/**
 * Sends what the gateway counts to the registry, once a second. A batch is sent again, unchanged, until the registry
 * has it in SQL. Batches have numbers, and the registry adds each number once.
 */
export class UsageSender {
  readonly counter = new UsageCounter();
  readonly #options: UsageSenderOptions;
  readonly #every: number;
  /** Id of this process for the registry. */
  #process = uniqueId();
  #sequence = 0;
  #acknowledged = 0;
  #kept: KeptBatch[] = [];
  #period: Period | null = null;
  #countedUntil: number;
  #madeAt: number;
  #keysOfBatch = mostKeysOfBatch;
  #timer: NodeJS.Timeout | null = null;
  #filling: Promise<void> = Promise.resolve();
  /** Why the last send failed. */
  #failure = 'no registry replies';
  #isLate = false;
  #isClosed = false;
  /** Numbers of batches that the registry stored and refused. */
  readonly stats = { stored: 0, refused: 0 };

  /** @param every interval of batches, in milliseconds */
  constructor(options: UsageSenderOptions, every = everyMilliseconds) {
    [this.#options, this.#every] = [options, every];
    this.#countedUntil = this.#madeAt = options.clock.now();
  }

  /** How long the oldest batch without a reply has waited, in milliseconds; 0 without one. */
  get delay(): number {
    const [oldest] = this.#kept;
    return oldest === undefined ? 0 : Math.max(0, this.#options.clock.now() - oldest.madeAt);
  }

  start(): void {
    let isFilling = false;
    this.#timer = setInterval(() => {
      if (isFilling) return;
      isFilling = true;
      this.#filling = this.#fill(mostUnderWay)
        .then(() => {
          void this.#sendKept();
          this.#reportDelay();
        })
        .finally(() => (isFilling = false));
    }, this.#every).unref();
  }

  /**
   * Sends all that is left, and the end mark. What Redis has taken by then, the registry reads later.
   * @param milliseconds how long to wait for the replies
   */
  async close(milliseconds: number): Promise<void> {
    if (this.#timer !== null) clearInterval(this.#timer);
    await this.#filling;
    this.#isClosed = true;
    await this.#fill(Infinity);
    await Promise.race([this.#sendKept(), wait(milliseconds, undefined, { ref: false })]);
  }

  /** Makes batches of what was counted, while fewer than `most` are kept. */
  async #fill(most: number): Promise<void> {
    while (this.#kept.length < most) {
      this.#period ??= this.#nextPeriod();
      if (this.#period === null) {
        const isDue = this.#kept.length === 0 && this.#options.clock.now() - this.#madeAt >= idleMilliseconds;
        if (isDue || this.#isClosed) await this.#keepEmpty();
        return;
      }
      const count = Math.min(this.#keysOfBatch, this.#period.parts.left);
      if (await this.#keep(this.#period, count)) {
        this.#keysOfBatch = Math.min(mostKeysOfBatch, 2 * count);
        if (this.#period.parts.left === 0) this.#period = null;
      } else this.#keysOfBatch = Math.max(1, Math.floor(count / 2));
    }
  }

  #nextPeriod(): Period | null {
    const tally = this.counter.take();
    if (tally === null) return null;
    const [from, to] = [this.#countedUntil, this.#options.clock.now()];
    this.#countedUntil = to;
    return { parts: new UsageParts(tally), from, to };
  }

  /** Makes a batch of this many keys and merchants. @returns whether it is short enough for a message */
  async #keep({ parts, from, to }: Period, count: number): Promise<boolean> {
    const writer = new BatchWriter(from);
    parts.write(count, writer);
    const head = { ...this.#head(from, to), isLast: false, dropped: parts.dropped };
    const text = await writer.text(head);
    if (text.length > maxMessageBytes && count > 1) return false;
    if (head.process !== this.#process) return this.#keep({ parts, from, to }, count); // given up meanwhile
    parts.remove(count);
    this.#add(text);
    return true;
  }

  /** Makes a batch without counts: a sign of life, or the end mark. */
  async #keepEmpty(): Promise<void> {
    const at = this.#countedUntil;
    const dropped = { refusals: 0, rows: 0 };
    this.#add(await new BatchWriter(at).text({ ...this.#head(at, at), isLast: this.#isClosed, dropped }));
  }

  #head(from: number, to: number): Omit<BatchHead, 'isLast' | 'dropped'> {
    const { instance, environment } = this.#options;
    const [process, sequence, acknowledged] = [this.#process, this.#sequence + 1, this.#acknowledged];
    return { process, instance, environment, sequence, acknowledged, from, to };
  }

  #add(text: string): void {
    this.#sequence += 1;
    this.#madeAt = this.#options.clock.now();
    this.#kept.push({ sequence: this.#sequence, text, madeAt: this.#madeAt, sending: null });
  }

  /** Sends the batches that are not under way, in order. Resolves when all batches were replied to or have failed. */
  #sendKept(): Promise<unknown> {
    return Promise.all(
      this.#kept.map((batch) => (batch.sending ??= this.#sendOne(batch).finally(() => (batch.sending = null)))),
    );
  }

  async #sendOne({ text }: KeptBatch): Promise<void> {
    const process = this.#process;
    let reply: unknown;
    try {
      reply = JSON.parse(await this.#options.channel.send({ kind: 'usage', body: text }));
    } catch (error) {
      this.#failure = error instanceof Error ? error.message : String(error);
      return;
    }
    if (process !== this.#process) return; // a reply to a batch that was given up
    if (Check(storedReply, reply)) this.#stored(reply.sequence);
    else this.#giveUp(Check(refusedReply, reply) ? reply.problem : 'the reply of the registry is malformed');
  }

  /** @param sequence of the last batch that the registry has in SQL */
  #stored(sequence: number): void {
    const former = this.#kept.length;
    this.#kept = this.#kept.filter((batch) => batch.sequence > sequence);
    this.stats.stored += former - this.#kept.length;
    this.#acknowledged = Math.max(this.#acknowledged, Math.min(sequence, this.#sequence));
  }

  /**
   * Drops the batches that are kept, because the registry will never take one of them. The registry takes batches in
   * order, so the next one begins a new order.
   */
  #giveUp(problem: string): void {
    this.stats.refused += this.#kept.length;
    [this.#kept, this.#process, this.#sequence, this.#acknowledged] = [[], uniqueId(), 0, 0];
    this.#options.onUsageProblem(`the registry refuses counts: ${problem}`);
  }

  #reportDelay(): void {
    const isLate = this.delay >= lateMilliseconds;
    if (isLate === this.#isLate) return;
    this.#isLate = isLate;
    this.#options.onUsageProblem(isLate ? this.#failure : null);
  }
}
