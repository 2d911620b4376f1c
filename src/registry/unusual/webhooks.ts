import { createHash } from 'node:crypto';
import { ulid } from 'ulid';
import type { Clock, Logger, Timers } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { PassedTime } from '../retention-task.js';
import { aheadMilliseconds, deleteOldFindings, newestFinding } from './findings.js';
import type { UnusualFinding, UndeliveredWebhook } from './schema.js';

/** A message for a webhook. */
interface WebhookMessage {
  /** The id of the message. It is the same in all attempts, so that the receiver can ignore repetitions. */
  readonly id: string;
  readonly body: string;
}

/** A webhook URL to which messages are sent. */
export interface WebhookTarget {
  /** Digest of the URL. */
  readonly id: string;
  /** The host of the URL, which the log and the admin API show. */
  readonly name: string;
  /** Sends a message. Never rejects. @returns why the target did not accept the message; null if it was accepted */
  send(message: WebhookMessage): Promise<string | null>;
}

const digestLength = 16;

/** Returns the id of the target with this URL. The database stores only ids, because a URL could contain a secret. */
export function targetIdOf(url: string): string {
  return createHash('sha256').update(url).digest('hex').slice(0, digestLength);
}

const rowsPerStatement = 100;

/** Stores the messages about findings for all targets. Call this in the transaction that stores the findings. */
export async function enqueueWebhooks(
  transaction: RegistryDatabase,
  findings: readonly UnusualFinding[],
  targets: readonly string[],
  now: number,
): Promise<void> {
  const timestamp = new Date(now).toISOString();
  const rows = findings.flatMap((data) => {
    const [id, body] = [`msg_${ulid(now)}`, JSON.stringify({ type: 'key.unusual-use', timestamp, data })];
    const state = { created_at: now, attempts: 0, next_at: now, given_up_at: null, problem: null };
    return targets.map((target) => ({ id, target, body, ...state }));
  });
  for (let from = 0; from < rows.length; from += rowsPerStatement)
    await transaction
      .insertInto('webhooks')
      .values(rows.slice(from, from + rowsPerStatement))
      .execute();
}

const hourMilliseconds = 60 * 60 * 1000;
const lateMilliseconds = 10 * 60 * 1000;

/**
 * Counts the messages that are still undelivered ten minutes after their creation, including those that were given up.
 * Also counts messages from the future: the clock was set back, so their age is unknown.
 */
export async function countUndelivered(database: RegistryDatabase, now: number): Promise<number> {
  const late = database
    .selectFrom('webhooks')
    .where((it) =>
      it.or([it('created_at', '<', now - lateMilliseconds), it('created_at', '>', now + aheadMilliseconds)]),
    );
  return (await late.select((it) => it.fn.countAll<number>().as('count')).executeTakeFirstOrThrow()).count;
}

const shown = 100;

/** Returns up to 100 undelivered messages for which at least one attempt was made, oldest first. */
export async function listUndelivered(
  database: RegistryDatabase,
  targets: readonly WebhookTarget[],
): Promise<UndeliveredWebhook[]> {
  const all = database.selectFrom('webhooks').selectAll().where('attempts', '>', 0);
  const rows = await all.orderBy('created_at').orderBy('id').limit(shown).execute();
  return rows.map(({ id, target, created_at, attempts, next_at, given_up_at, problem }) => ({
    ...{ id, attempts, problem, target: targets.find((one) => one.id === target)?.name ?? null },
    createdAt: new Date(created_at).toISOString(),
    nextAt: given_up_at === null ? new Date(next_at).toISOString() : null,
    givenUpAt: given_up_at === null ? null : new Date(given_up_at).toISOString(),
  }));
}

/** Dependencies of WebhookSender. */
export interface WebhookSenderOptions {
  readonly database: RegistryDatabase;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly targets: readonly WebhookTarget[];
  /** Age in days after which findings are deleted. */
  readonly keepDays: number;
  readonly logger?: Logger | undefined;
  /** A monotonic clock, in milliseconds. */
  readonly monotonic?: (() => number) | undefined;
}

const roundMilliseconds = 2_000;
const messagesPerRound = 10;
/**
 * How long an attempt reserves its message for this process. The time is longer than an attempt takes. If the process
 * ends during the attempt, another process sends the message when the reservation has expired.
 */
const claimMilliseconds = 60_000;
const pauses = [5, 30, 120, 600, 1_800, 3_600, 7_200].map((seconds) => seconds * 1_000);
/** A message that would wait longer than this is sent at once: the clock was set back after `next_at` was stored. */
const longestWaitMilliseconds = claimMilliseconds + Math.max(...pauses);
const givenUpAfterMilliseconds = 24 * hourMilliseconds;
const keptGivenUpMilliseconds = 30 * 24 * hourMilliseconds;

interface Due extends WebhookMessage {
  readonly attempts: number;
  readonly created_at: number;
  readonly next_at: number;
}

/**
 * Sends the stored messages. Repeats a failed message for a day, with growing pauses. Deletes old messages and
 * findings.
 */
export class WebhookSender {
  readonly #options: WebhookSenderOptions;
  readonly #passed: PassedTime;
  #cleanedAt = -Infinity;
  #cancel: () => void = () => undefined;
  #running: Promise<unknown> = Promise.resolve();
  #isStopped = false;

  constructor(options: WebhookSenderOptions) {
    this.#options = options;
    this.#passed = new PassedTime(options.monotonic);
  }

  /** Runs until `stop()`. */
  start(): void {
    if (this.#isStopped) return;
    this.#cancel = this.#options.timers.after(roundMilliseconds, () => {
      this.#running = this.round()
        .catch(() => undefined) // the database is unavailable: the next round retries
        .then(() => {
          this.start();
        });
    });
  }

  /** Stops after the current attempts. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#cancel();
    await this.#running;
  }

  /**
   * Makes one attempt for each due message, up to ten messages per target. Once an hour, also deletes old findings and
   * messages.
   */
  async round(): Promise<void> {
    const { targets, clock } = this.#options;
    const now = clock.now();
    await Promise.all(targets.map((target) => this.#sendDue(target, now)));
    if (now >= this.#cleanedAt && now - this.#cleanedAt < hourMilliseconds) return;
    this.#cleanedAt = now;
    await this.#clean(now);
  }

  async #sendDue(target: WebhookTarget, now: number): Promise<void> {
    const due = await this.#options.database
      .selectFrom('webhooks')
      .select(['id', 'body', 'attempts', 'created_at', 'next_at'])
      .where('target', '=', target.id)
      .where('given_up_at', 'is', null)
      .where((it) => it.or([it('next_at', '<=', now), it('next_at', '>', now + longestWaitMilliseconds)]))
      .orderBy('next_at')
      .limit(messagesPerRound)
      .execute();
    await Promise.all(due.map((message) => this.#attempt(target, message, now)));
  }

  async #attempt(target: WebhookTarget, message: Due, now: number): Promise<void> {
    const { database, clock, logger } = this.#options;
    const { id, attempts } = message;
    // If the clock was set back, the stored time can be in the future. The message would then be given up too late.
    const created_at = Math.min(message.created_at, now);
    const own = database.updateTable('webhooks').where('id', '=', id).where('target', '=', target.id);
    const claim = { attempts: attempts + 1, created_at, next_at: now + claimMilliseconds };
    const claimed = await own.set(claim).where('next_at', '=', message.next_at).executeTakeFirstOrThrow();
    if (claimed.numUpdatedRows === 0n) return;
    const problem = await target.send(message);
    if (problem === null) {
      await database.deleteFrom('webhooks').where('id', '=', id).where('target', '=', target.id).execute();
      return;
    }
    const failedAt = clock.now();
    const next_at = failedAt + (pauses[Math.min(attempts, pauses.length - 1)] ?? 0);
    const isOver = next_at > created_at + givenUpAfterMilliseconds;
    await own.set({ next_at, problem, given_up_at: isOver ? failedAt : null }).execute();
    if (attempts === 0) logger?.warn({ webhook: id, target: target.name, problem }, 'webhook not delivered; retrying');
    if (isOver)
      logger?.error(
        { webhook: id, target: target.name, problem },
        'webhook given up after a day without delivery: see "merchant-gateway unusual webhooks"',
      );
  }

  async #clean(now: number): Promise<void> {
    const { database, targets, keepDays } = this.#options;
    const moment = await this.#passed.atMost(now, () => newestFinding(database));
    if (moment !== null) await deleteOldFindings(database, moment - keepDays * 24 * hourMilliseconds);
    const old = now - keptGivenUpMilliseconds;
    await database.deleteFrom('webhooks').where('given_up_at', '<', old).execute();
    // Also gives up old messages to targets that are no longer configured, because no process sends them.
    const ids = targets.map(({ id }) => id);
    let abandoned = database
      .updateTable('webhooks')
      .set({ given_up_at: now, problem: 'the target of the webhook is no longer configured' })
      .where('given_up_at', 'is', null)
      .where('created_at', '<', now - givenUpAfterMilliseconds);
    if (ids.length > 0) abandoned = abandoned.where('target', 'not in', ids);
    await abandoned.execute();
  }
}
