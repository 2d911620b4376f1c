import { acknowledgementText, type GatewayIdentity } from './acknowledgement-text.js';
import { FirstGrant } from './first-grant.js';
import { readGrant } from '../gateway-records.js';
import { InactiveMemory, type InactiveMemoryOptions } from './inactive-memory.js';
import { type ClockReading, freshMilliseconds } from './lease.js';
import type { Outage } from '../outage.js';
import type { RecordNames } from '../record-names.js';
import type { AcknowledgementText, RecordsLink } from '../records-link.js';
import type { SealCheck } from '../seal.js';
import { Standing, type StandingOptions } from './standing.js';
import type { BelievedState } from '../store-state.js';
import { Signal } from './turn.js';

/** Dependencies and callbacks of a heartbeat. */
export interface HeartbeatOptions extends StandingOptions {
  readonly link: Omit<RecordsLink, 'names' | 'readSome' | 'text' | 'receiveNotices'>;
  readonly outage: Outage;
  readonly names: RecordNames;
  readonly identity: GatewayIdentity;
  readonly seals: SealCheck;
  /**
   * Called in a heartbeat after the pending invalidation messages were handled, and before the acknowledgement, which
   * reports the revision to the registry as applied. `hasMissed`: messages may have been missed since the last call.
   */
  readonly onCaughtUp: (hasMissed: boolean) => void;
  /**
   * Called when the gateway must drop all cached records: the registry now reports changes as in force without waiting
   * for this gateway.
   */
  readonly onForget: () => void;
  /** Returns the cached keys that are inactive or have an expiry, and the merchants that are inactive or not live. */
  readonly inactive: InactiveMemoryOptions['held'];
}

const everyMilliseconds = 500;
/** If the registry confirms no heartbeat for this long, sentinels or replicas must prove that the server is master. */
const oldEchoMilliseconds = 1_000;

/**
 * Every 500 ms, reads the newest revision, which is the number of the last change. Then handles all pending
 * invalidation messages, and acknowledges the revision to the registry. The registry writes records before it raises
 * the revision, so the cache has dropped every changed record before the acknowledgement. A heartbeat's result is valid
 * only for the connections that the heartbeat used.
 */
export class Heartbeat {
  readonly #options: HeartbeatOptions;
  readonly standing: Standing;
  /**
   * The wait for the first grant, with which the registry lets the gateway use its cache. During the wait, the gateway
   * reports that it is not ready, but already serves requests.
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
   * The link's epoch in which the cached records were read. The epoch changes with each reconnect. Messages may be
   * missed during a reconnect, so the next heartbeat drops the whole cache. NaN: the cache is dropped in any case.
   */
  #heldEpoch = 0;
  #asking: Promise<void> | null = null;
  /** How old the result of the last successful heartbeat was when that heartbeat ended. */
  #tookMilliseconds = 0;
  /** Whether `close` was called. No heartbeat begins after that. */
  isClosed = false;

  constructor(options: HeartbeatOptions) {
    const { link, names, identity, seals, inactive: held } = options;
    [this.#options, this.#seals, this.standing] = [options, seals, new Standing(options)];
    this.#inactive = new InactiveMemory({ link, names, instanceId: identity.instanceId, held, seals: seals.seals });
    this.firstGrant = new FirstGrant(options.onNotice);
    this.#timer = setInterval(() => {
      if (this.#running === null) void this.beat();
    }, everyMilliseconds).unref();
  }

  /** Starts a heartbeat, now or after the running heartbeat. Resolves when the started heartbeat has ended. */
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
    // Return if the last heartbeat was so slow that its result was too old for a fresh cache: reading Redis is faster.
    if (this.#tookMilliseconds > freshMilliseconds && this.standing.proof !== null) return;
    // During an outage, do not wait: a heartbeat without a reply would only delay the request.
    if (this.standing.hasReplied || this.standing.last === null) await this.#running;
    if (!this.standing.fresh && this.standing.hasReplied && this.#options.link.connected) await this.beat();
  }

  /**
   * Handles changed records. While the heartbeats distrust the store, no new version can be read, so the records stay
   * cached as stale. The next successful heartbeat then drops all records.
   * @returns whether the cache must drop the changed records now
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
    // Drop the records at once. A registry of an earlier release confirms changes without waiting for a gateway that
    // distrusts the store.
    if (this.standing.state.isFormer) this.#drop();
    this.#heldEpoch = NaN;
    this.markUnverified();
  }

  /** Makes all cached records stale and stops reads until a heartbeat has succeeded. Starts this heartbeat. */
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
      // Before adopting another generation (history of changes), report the revocations that the cache contains: after
      // a restore, the registry's database may lack these revocations.
      const { last } = this.standing;
      if (found?.generation !== last?.generation) await this.#inactive.report(last, epoch);
      if (found === null || meta === null) {
        this.standing.judge(epoch, false);
        outage.report(this.standing.state.reason);
        void link.followSentinels?.(); // otherwise the gateway could stay connected to a former master
        return;
      }
      if (servers === null && found.replicas !== null)
        throw new Error('the connections to Redis are not ready, or reach servers with different run_ids');
      await link.checkParts(meta, found.generation);
      // On a busy machine, the check of a Cluster's slots can take longer than a proof of the master stays valid. The
      // masters confirm the slot map after the check, so their proof counts from the end of the check.
      const at = link.witness(found.replicas ?? 0) === 'masters' ? this.standing.lease.now() : begunAt;
      await link.catchUp();
      if (this.standing.epoch !== epoch) return; // the connections changed: a later heartbeat decides
      this.standing.reconsider();
      onCaughtUp(link.epoch !== this.#heldEpoch);
      this.#heldEpoch = link.epoch;
      const acknowledgement = this.#textOf(found, beat);
      const grant = await link
        .acknowledge(acknowledgement, names.grant(identity.instanceId))
        .catch((error: unknown) => this.#writeFailed(error, found, acknowledgement, at, epoch));
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
        await this.#askWitnesses(acknowledgement, found.replicas, at, epoch);
        if (this.standing.epoch !== epoch) return;
      }
      this.#tookMilliseconds = this.standing.lease.since(at);
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

  /** Asks the sentinels or replicas whether this server is still the master. */
  async #askWitnesses(text: AcknowledgementText, replicas: number, at: ClockReading, epoch: number): Promise<void> {
    this.#asking ??= this.#queryWitnesses(text, replicas, at, epoch);
    // After a failover, wait for the sentinels or replicas to confirm the new server; otherwise waiting requests
    // would be rejected. If the server is already confirmed, do not wait, because a sentinel could hang.
    if (!this.standing.isWitnessed) await this.#asking;
  }

  async #queryWitnesses(text: AcknowledgementText, replicas: number, at: ClockReading, epoch: number): Promise<void> {
    const isConfirmed = await this.#options.link.confirm(text, replicas);
    this.#asking = null;
    if (this.standing.lease.isOver) this.#forget();
    if (isConfirmed && this.standing.epoch === epoch) this.standing.lease.sure(at);
  }

  /**
   * Handles a failed write of the acknowledgement. A server that is full or cannot save stays in use: it refuses the
   * registry's writes too, so its records are still current. A demoted or isolated master is no longer read.
   */
  async #writeFailed(
    error: unknown,
    found: BelievedState,
    acknowledgement: AcknowledgementText,
    at: ClockReading,
    epoch: number,
  ): Promise<never> {
    this.standing.acknowledgement.failed(error);
    const isReply = error instanceof Error && error.name === 'ReplyError';
    if (isReply && this.standing.epoch === epoch) {
      const isBelieved = !this.standing.acknowledgement.isRefused;
      if (isBelieved) {
        this.standing.adopt(found);
        await this.#proveMaster(found, acknowledgement, at, epoch);
      }
      if (this.standing.epoch === epoch) this.standing.judge(epoch, isBelieved);
    }
    throw error;
  }

  /**
   * Lets a gateway without a lease for its cache read a server that cannot store the gateway's acknowledgement. This
   * gateway caches nothing, so it only needs a proof that the server is still the master. A lease must not be extended
   * without an acknowledgement, because the registry counts the lease from the last acknowledgement.
   */
  async #proveMaster(
    { replicas }: BelievedState,
    acknowledgement: AcknowledgementText,
    at: ClockReading,
    epoch: number,
  ): Promise<void> {
    const { lease, state } = this.standing;
    // `notNamed`: the meta record does not name this server, so only an enrolled gateway can detect lost changes.
    if (lease.enrolled || state.notNamed !== null || replicas === null) return;
    const witness = this.#options.link.witness(replicas);
    if (witness === 'masters') lease.sure(at);
    if (witness === 'others') await this.#askWitnesses(acknowledgement, replicas, at, epoch);
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
