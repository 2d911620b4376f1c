import { acknowledgementText, type GatewayIdentity } from './acknowledgement-text.js';
import { readGrant } from '../gateway-records.js';
import { InactiveMemory, type InactiveMemoryOptions } from './inactive-memory.js';
import type { ClockReading } from './lease.js';
import type { Outage } from '../outage.js';
import type { RecordNames } from '../record-names.js';
import type { AcknowledgementText, RecordsLink } from '../records-link.js';
import { noCheck, type SealCheck } from '../seal.js';
import { Standing, type StandingOptions } from './standing.js';
import type { BelievedState } from '../store-state.js';
import { Signal } from './turn.js';

/** Dependencies and callbacks of a heartbeat. */
export interface HeartbeatOptions extends StandingOptions {
  readonly link: Omit<RecordsLink, 'names' | 'readSome' | 'text' | 'receiveNotices'>;
  readonly outage: Outage;
  readonly names: RecordNames;
  readonly identity: GatewayIdentity;
  readonly seals?: SealCheck;
  /**
   * Called after all earlier invalidation messages have been handled, and before the revision is acknowledged, that is,
   * reported to the registry as applied. `hasMissed`: messages may have been missed since the last call.
   */
  readonly onCaughtUp: (hasMissed: boolean) => void;
  /**
   * Called when the gateway must drop all cached records: the registry now reports changes as in force without waiting
   * for this gateway.
   */
  readonly onForget: () => void;
  /** Returns the cached keys and merchants that have an expiry, or a status that denies requests (inactive). */
  readonly inactive: InactiveMemoryOptions['held'];
}

const everyMilliseconds = 500;
/**
 * The maximum age of the registry's newest confirmation of a heartbeat. If it is older, the sentinels or replicas must
 * also confirm that the server is still the master.
 */
const oldEchoMilliseconds = 1_000;

/**
 * Every 500 ms, reads the newest revision (number of a change), handles all pending invalidation messages, and then
 * acknowledges the revision to the registry. The registry writes records before it raises the revision, so the cache
 * has dropped every changed record before the acknowledgement. The result holds only for the connections in use.
 */
export class Heartbeat {
  readonly #options: HeartbeatOptions;
  readonly standing: Standing;
  /**
   * The wait for the registry's first grant (the lease for the cache). During the wait, the gateway reports that it is
   * not ready, but already serves requests.
   */
  readonly firstGrant: FirstGrant;
  /** The signal that wakes waiting requests once a heartbeat has decided whether to trust the current connections. */
  readonly verdict = new Signal();
  readonly #inactive: InactiveMemory;
  readonly #seals: SealCheck;
  readonly #timer: NodeJS.Timeout;
  #running: Promise<void> | null = null;
  #next: Promise<void> | null = null;
  /**
   * The connection epoch (changes with each reconnect) in which the cached records were read. If it differs or is NaN,
   * messages may have been missed, so the next heartbeat drops the whole cache.
   */
  #heldEpoch = 0;
  #asking: Promise<void> | null = null;
  /** Whether `close` was called. No heartbeat begins after that. */
  isClosed = false;

  constructor(options: HeartbeatOptions) {
    const { link, names, identity, seals = noCheck, inactive: held } = options;
    [this.#options, this.#seals, this.standing] = [options, seals, new Standing(options)];
    this.#inactive = new InactiveMemory({ link, names, instanceId: identity.instanceId, held, seals: seals.seals });
    this.firstGrant = new FirstGrant(options.onNotice);
    this.#timer = setInterval(() => {
      if (this.#running === null) void this.beat();
    }, everyMilliseconds).unref();
  }

  /** Starts a heartbeat, now or after the running one. Resolves when that heartbeat has ended. */
  beat(): Promise<void> {
    if (this.isClosed) return Promise.resolve();
    if (this.#running === null) {
      this.#running = this.#beat().finally(() => (this.#running = null));
      return this.#running;
    }
    this.#next ??= this.#running.then(() => {
      this.#next = null;
      return this.beat();
    });
    return this.#next;
  }

  /** Tries to make the cache fresh again within a bounded time. Returns at once if the attempt cannot succeed. */
  async catchUp(): Promise<void> {
    if ((!this.standing.lease.enrolled && this.standing.proof !== null) || this.standing.filling !== null) return;
    // During an outage, do not wait: a heartbeat without a reply would only delay the request.
    if (this.standing.hasReplied || this.standing.last === null) await this.#running;
    if (!this.standing.fresh && this.standing.hasReplied && this.#options.link.connected) await this.beat();
  }

  /**
   * Handles changed records.
   * @returns whether the cache must drop the changed records now. If false, the records stay cached as stale, because
   * no new version can be read while the heartbeats distrust the store. The next successful heartbeat drops everything.
   */
  changed(): boolean {
    if (this.standing.state.isFormer || this.standing.isBelieved) return true;
    this.#heldEpoch = NaN;
    return false;
  }

  /**
   * Makes all cached records stale until the next successful heartbeat, which drops them. Must be called when any
   * record may have changed.
   */
  everythingChanged(): void {
    // Drop at once: a registry of an earlier release reports a change as in force without waiting for this gateway.
    if (this.standing.state.isFormer) this.#drop();
    this.#heldEpoch = NaN;
    this.markUnverified();
  }

  /** Makes all cached records stale and stops reads until a heartbeat, which it starts, has checked the connections. */
  markUnverified(): void {
    this.standing.markUnverified();
    void this.beat();
  }

  /**
   * Stops the heartbeats, drops the cache, and marks the acknowledgement as `leaving` or deletes it. The registry then
   * no longer waits for this gateway. Must be called after the last request has been decided.
   */
  async close(): Promise<void> {
    this.isClosed = true;
    clearInterval(this.#timer);
    await this.#running;
    this.standing.judge(NaN, false);
    this.#forget();
    const { link, names, identity } = this.#options;
    const leaving =
      this.standing.last === null || this.standing.state.isFormer
        ? link.remove(names.gateway(identity.instanceId))
        : link.acknowledge(
            this.#textOf(this.standing.last, this.standing.lease.begin().beat, { leaving: true }),
            names.grant(identity.instanceId),
          );
    await leaving.catch(() => undefined);
  }

  async #beat(): Promise<void> {
    const { link, names, identity, onCaughtUp, outage } = this.#options;
    const { beat, at: begunAt } = this.standing.lease.begin();
    if (this.standing.lease.isOver) this.#forget();
    const epoch = this.standing.epoch;
    let replied = false;
    try {
      const [meta, newest] = await link.readState();
      replied = true;
      const { servers } = link;
      const found = this.standing.judgeState(meta, newest, servers);
      // Report revocations in the cache before another generation (history of changes) is adopted: the registry's
      // database may have lost them in a restore.
      const { last } = this.standing;
      if (found?.generation !== last?.generation) await this.#inactive.report(last, epoch);
      if (found === null || meta === null) {
        this.standing.judge(epoch, false);
        outage.report(this.standing.state.reason);
        return;
      }
      if (servers === null && found.replicas !== null)
        throw new Error('the connections to Redis are not ready, or reach different servers (run_id in INFO)');
      await link.checkParts(meta, found.generation);
      // On a busy machine, the check of a Cluster's slots can take longer than its result stays valid. The masters
      // confirm the slot map after the check, so the result counts from the end of the check.
      const at = link.witness(found.replicas ?? 0) === 'masters' ? this.standing.lease.now() : begunAt;
      await link.catchUp();
      if (this.standing.epoch !== epoch) return; // the connections changed: a later heartbeat decides
      this.standing.reconsider();
      onCaughtUp(link.epoch !== this.#heldEpoch);
      this.#heldEpoch = link.epoch;
      const acknowledgement = this.#textOf(found, beat);
      const grant = await link
        .acknowledge(acknowledgement, names.grant(identity.instanceId))
        .catch((error: unknown) => this.#writeFailed(error, found, epoch));
      if (this.standing.lease.isOver) this.#forget();
      if (this.standing.epoch !== epoch) return;
      this.standing.acknowledgement.put(at);
      this.standing.adopt(found);
      const isAsked = found.replicas !== null && link.witness(found.replicas) === 'others';
      if (found.replicas === null) this.standing.lease.assume(found.generation);
      else this.#granted(this.#seals.opened(names.grant(identity.instanceId), grant), found.generation);
      if (!isAsked) this.standing.lease.sure(at);
      this.standing.goodAt = at.monotonic;
      if (isAsked && this.standing.lease.sinceEchoed > oldEchoMilliseconds) {
        this.#asking ??= this.#queryWitnesses(acknowledgement, found.replicas, at, epoch);
        // After a failover, wait for the sentinels or replicas to confirm the new server; otherwise waiting requests
        // would be rejected. If the server is already confirmed, do not wait, because a sentinel could hang.
        if (!this.standing.isWitnessed) await this.#asking;
        if (this.standing.epoch !== epoch) return;
      }
      this.standing.judge(epoch, true);
      this.firstGrant.beat(this.standing.lease.enrolled);
      if (this.standing.lease.enrolled) this.#inactive.clear();
      outage.report(link.partLost);
    } catch (error) {
      this.standing.failure = error instanceof Error ? error.message : String(error);
      // Report an outage only if no heartbeat succeeded recently. The link itself reports connection errors.
      if (!this.standing.isRecent) outage.report(String(error));
    } finally {
      this.standing.hasReplied = replied;
      if (this.standing.isJudged) this.verdict.come();
    }
  }

  async #queryWitnesses(text: AcknowledgementText, replicas: number, at: ClockReading, epoch: number): Promise<void> {
    const isConfirmed = await this.#options.link.confirm(text, replicas);
    this.#asking = null;
    if (this.standing.lease.isOver) this.#forget();
    if (isConfirmed && this.standing.epoch === epoch) this.standing.lease.sure(at);
  }

  /**
   * Handles a refused write of the acknowledgement (the newest change that this gateway has applied). A server that is
   * full or cannot save stays in use: it refuses the registry's writes too, so its records are still current. A demoted
   * or isolated master is no longer read.
   */
  #writeFailed(error: unknown, found: BelievedState, epoch: number): never {
    this.standing.acknowledgement.failed(error);
    const isReply = error instanceof Error && error.name === 'ReplyError';
    if (isReply && this.standing.epoch === epoch) {
      const isBelieved = !this.standing.acknowledgement.isRefused;
      if (isBelieved) this.standing.adopt(found);
      this.standing.judge(epoch, isBelieved);
    }
    throw error;
  }

  #granted(grant: string | null, generation: string): void {
    const before = this.standing.lease.generation;
    this.standing.lease.granted(readGrant(grant), generation);
    if (before !== null && this.standing.lease.generation !== before) this.#drop();
  }

  #forget(): void {
    this.standing.lease.end();
    this.#drop();
  }

  #drop(): void {
    this.#inactive.remember(this.standing.last);
    this.#options.onForget();
  }

  #textOf(found: BelievedState, beat: number, leaving: { leaving?: true } = {}): AcknowledgementText {
    const { identity, names, clock } = this.#options;
    const { lifetimeMilliseconds } = this.standing.lease;
    const reported = { beat, lifetimeMilliseconds, now: Math.max(0, Math.round(clock.now())), ...leaving };
    return acknowledgementText(identity, found, reported, names.gateway(identity.instanceId), this.#seals.seals);
  }
}

/** How long a new gateway waits for its first grant (lease for its cache) before it becomes ready without it. */
const grantTimeoutMilliseconds = 2_000;

/**
 * Waits for the gateway's first grant (the lease for its cache). Without a grant, each request reads from Redis, so a
 * short wait is worthwhile.
 */
export class FirstGrant {
  readonly #onNotice: (notice: string) => void;
  #since: number | null = null;
  #isOver = false;

  /** @param onNotice called if the wait ends without a grant (lease for the cache) */
  constructor(onNotice: (notice: string) => void) {
    this.#onNotice = onNotice;
  }

  /** Why the gateway is not ready, while it waits for the grant; null if it does not wait. */
  get reason(): string | null {
    const waits = !this.#isOver && this.#since !== null && performance.now() - this.#since < grantTimeoutMilliseconds;
    return waits ? 'waiting for the registry to enrol this gateway (to let it cache records)' : null;
  }

  /**
   * Records a successful heartbeat.
   * @param hasLeave whether the registry has enrolled (listed) the gateway, so that it is allowed to cache records
   */
  beat(hasLeave: boolean): void {
    if (this.#isOver) return;
    this.#since ??= performance.now();
    const isMissing = !hasLeave && performance.now() - this.#since >= grantTimeoutMilliseconds;
    this.#isOver = hasLeave || isMissing;
    if (isMissing)
      this.#onNotice(
        'the registry has not enrolled this gateway, so the gateway caches no records and reads Redis for each request: check that the registry runs',
      );
  }
}
