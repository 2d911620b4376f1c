import { setTimeout as wait } from 'node:timers/promises';
import type { Clock } from '../../gateway/ports.js';
import { maxMessageBytes, type RegistryChannel } from '../../gateway/channel-ports.js';
import type { Environment } from '../../policy/key-format.js';
import { uniqueId } from '../../telemetry/unique-id.js';
import Type, { Check } from '../../typebox/typebox.js';
import { type BatchHead, BatchWriter, withAcknowledged } from '../../usage/batch-text.js';
import { UsageCounter } from './usage-counter.js';
import { UsageParts } from './usage-parts.js';

/** How a gateway process sends its usage counts to the registry. */
export interface UsagePort {
  readonly channel: RegistryChannel;
  /** Name of this process, for display to operators. */
  readonly instance: string;
  /**
   * Called with the problem when the registry stops storing usage counts or rejects some, and with null when it stores
   * them again.
   */
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
/** A process that counts no requests sends a heartbeat (a batch without counts) at this interval. */
const idleMilliseconds = 10_000;
/**
 * Maximum number of batches (messages with counts) that the registry has not acknowledged. At this number, no further
 * batch is made, and the counts of further requests stay in the counter.
 */
const mostUnderWay = 16;
const mostKeysOfBatch = 500;
/** Maximum length of the text of a new batch. A later change of `acknowledged` can make it a few bytes longer. */
const mostTextLength = maxMessageBytes - 64;

/**
 * If the registry has not stored counts for this long, operators are warned. A restart of the registry takes less time.
 */
const lateMilliseconds = 30_000;

/**
 * A batch (message with counts) that the sender keeps until the registry has committed it to SQL. The sender may resend
 * the batch, so its sequence number and its counts never change.
 */
interface KeptBatch {
  readonly sequence: number;
  readonly madeAt: number;
  text: string;
  /**
   * The highest sequence number that the registry had acknowledged when `text` was made or last updated. `text`
   * contains it too.
   */
  acknowledged: number;
  /** Resolves when the registry has replied or the send has failed; null while the batch is not being sent. */
  sending: Promise<void> | null;
}

/** The counts of a past period that are not in batches (messages) yet. Times are in milliseconds since 1970. */
interface Period {
  readonly parts: UsageParts;
  readonly from: number;
  readonly to: number;
}

/**
 * Sends the usage counts to the registry, once a second, in numbered batches (messages). A batch is resent with the
 * same counts until the registry has committed it to SQL. The registry counts each batch number only once, so a resent
 * batch does no harm.
 */
export class UsageSender {
  readonly counter = new UsageCounter();
  readonly #options: UsageSenderOptions;
  readonly #every: number;
  /**
   * Identifies this process to the registry. For each id, the registry records the sequence number of the last batch
   * (message) that it has stored, and accepts no gap in the numbers. A rejected batch would leave a gap, so the process
   * then takes a new id and numbers its batches from 1 again.
   */
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
  #failure = 'the registry does not reply';
  #isLate = false;
  #isClosed = false;
  /**
   * `stored`: number of batches (messages with counts) that the registry has stored. `refused`: number of batches that
   * were dropped because the registry rejected one of them.
   */
  readonly stats = { stored: 0, refused: 0 };

  /** @param every interval between batches, in milliseconds */
  constructor(options: UsageSenderOptions, every = everyMilliseconds) {
    [this.#options, this.#every] = [options, every];
    this.#countedUntil = this.#madeAt = options.clock.now();
  }

  /**
   * Age of the oldest batch of counts that the registry has not acknowledged, in milliseconds. 0 if it has acknowledged
   * all.
   */
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
   * Sends the remaining counts, and a last batch (message) that marks the end. The registry can read batches from Redis
   * even after this process has ended.
   * @param milliseconds maximum time to wait for the replies
   */
  async close(milliseconds: number): Promise<void> {
    if (this.#timer !== null) clearInterval(this.#timer);
    await this.#filling;
    this.#isClosed = true;
    await this.#fill(Infinity);
    await Promise.race([this.#sendKept(), wait(milliseconds, undefined, { ref: false })]);
  }

  /** Makes batches (messages) from the counts, until all counts are in batches or `most` batches are unacknowledged. */
  async #fill(most: number): Promise<void> {
    while (this.#kept.length < most) {
      this.#period ??= this.#nextPeriod();
      if (this.#period === null) {
        const isDue = this.#kept.length === 0 && Math.abs(this.#options.clock.now() - this.#madeAt) >= idleMilliseconds;
        if (isDue || this.#isClosed) await this.#keepEmpty();
        return;
      }
      const count = Math.min(this.#keysOfBatch, this.#period.parts.left);
      if (await this.#keep(this.#period, count)) {
        this.#keysOfBatch = Math.min(mostKeysOfBatch, Math.max(this.#keysOfBatch, 2 * count));
        if (this.#period.parts.left === 0) this.#period = null;
      } else this.#keysOfBatch = Math.max(1, Math.floor(count / 2));
    }
  }

  #nextPeriod(): Period | null {
    const tally = this.counter.take();
    if (tally === null) return null;
    const to = this.#options.clock.now();
    const from = Math.min(this.#countedUntil, to); // the clock may have been set back
    this.#countedUntil = to;
    return { parts: new UsageParts(tally), from, to };
  }

  /**
   * Makes a batch (message) with the counts of this many keys and merchants.
   * @returns false, without adding the batch, if it is too long for a message and `count` can be reduced
   */
  async #keep({ parts, from, to }: Period, count: number): Promise<boolean> {
    const writer = new BatchWriter(from);
    parts.write(count, writer);
    const head = { ...this.#head(from, to), isLast: false, dropped: parts.dropped };
    const text = await writer.text(head);
    if (text.length > mostTextLength && count > 1) return false;
    if (head.process !== this.#process) return this.#keep({ parts, from, to }, count); // `#giveUp` ran meanwhile
    parts.remove(count);
    this.#add(head, text);
    return true;
  }

  /** Makes a batch (message) without counts: a heartbeat that shows that this process is running, or the last batch. */
  async #keepEmpty(): Promise<void> {
    const at = this.#countedUntil;
    const dropped = { refusals: 0, rows: 0 };
    const head = { ...this.#head(at, at), isLast: this.#isClosed, dropped };
    const text = await new BatchWriter(at).text(head);
    if (head.process !== this.#process) return this.#keepEmpty(); // `#giveUp` ran meanwhile
    this.#add(head, text);
  }

  #head(from: number, to: number): Omit<BatchHead, 'isLast' | 'dropped'> {
    const { instance, environment } = this.#options;
    const [process, sequence, acknowledged] = [this.#process, this.#sequence + 1, this.#acknowledged];
    return { process, instance, environment, sequence, acknowledged, from, to };
  }

  #add({ sequence, acknowledged }: BatchHead, text: string): void {
    this.#sequence = sequence;
    this.#madeAt = this.#options.clock.now();
    this.#kept.push({ sequence, madeAt: this.#madeAt, text, acknowledged, sending: null });
  }

  /**
   * Sends all batches (messages with counts) that are not being sent already. Starts with the oldest, but does not wait
   * for a reply before it sends the next. Resolves when the registry has replied to each batch or the send has failed.
   */
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
    if (process !== this.#process) return; // the reply to a batch that `#giveUp` has dropped
    if (Check(storedReply, reply)) await this.#stored(reply.sequence);
    else this.#giveUp(Check(refusedReply, reply) ? reply.problem : 'the reply of the registry is malformed');
  }

  /**
   * Drops the batches (messages with counts) that the registry has stored. If the registry has lost earlier batches,
   * updates `acknowledged` in the oldest kept batch, because otherwise the registry would wait for the lost batches.
   * @param sequence number of the last batch that the registry has committed to SQL
   */
  async #stored(sequence: number): Promise<void> {
    const former = this.#kept.length;
    this.#kept = this.#kept.filter((batch) => batch.sequence > sequence);
    this.stats.stored += former - this.#kept.length;
    this.#acknowledged = Math.max(this.#acknowledged, Math.min(sequence, this.#sequence));
    const [oldest] = this.#kept;
    if (oldest === undefined || sequence >= this.#acknowledged || oldest.acknowledged === this.#acknowledged) return;
    oldest.acknowledged = this.#acknowledged;
    oldest.text = await withAcknowledged(oldest.text, oldest.acknowledged);
  }

  /**
   * Drops all unacknowledged batches (messages) after the registry has rejected one. The registry stores batches only
   * in the order of their numbers, without gaps, so it would store no batch after the rejected one. The next batch
   * therefore gets number 1 again, under a new process id.
   */
  #giveUp(problem: string): void {
    this.stats.refused += this.#kept.length;
    [this.#kept, this.#process, this.#sequence, this.#acknowledged] = [[], uniqueId(), 0, 0];
    this.#options.onUsageProblem(
      `the registry rejected request counts, so all counts that it had not stored yet are lost: ${problem}`,
    );
  }

  #reportDelay(): void {
    const isLate = this.delay >= lateMilliseconds;
    if (isLate === this.#isLate) return;
    this.#isLate = isLate;
    this.#options.onUsageProblem(isLate ? `${this.#failure}; the gateway keeps the counts and retries` : null);
  }
}
