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

/** What a heartbeat depends on. */
export interface HeartbeatOptions extends StandingOptions {
  readonly link: Omit<RecordsLink, 'names' | 'readSome' | 'text' | 'receiveNotices'>;
  readonly outage: Outage;
  readonly names: RecordNames;
  readonly identity: GatewayIdentity;
  readonly seals?: SealCheck;
  /**
   * Called once all earlier notices have been handled, before the revision is acknowledged. `hasMissed`: notices may
   * have been missed since the last call.
   */
  readonly onCaughtUp: (hasMissed: boolean) => void;
  /** Called when the gateway must drop all cached records: the registry no longer waits for this gateway. */
  readonly onForget: () => void;
  /** Lists the cached keys and merchants that are inactive or have an expiry. */
  readonly inactive: InactiveMemoryOptions['held'];
}

const everyMilliseconds = 500;
/** Maximum age of the registry's echo. After that, the sentinels or replicas are queried as well. */
const oldEchoMilliseconds = 1_000;

/**
 * Determines how recent the cached records are, and acknowledges the newest revision.
 * A beat reads that revision, catches up with the invalidation notices, and then acknowledges it. Records are written
 * before their revision, so each record changed up to it has been dropped by then.
 * A beat's result holds only for the connections that the beat used.
 */
export class Heartbeat {
  readonly #options: HeartbeatOptions;
  readonly standing: Standing;
  /** Keeps the gateway unready at start until the first grant, although it already serves requests. */
  readonly firstGrant: FirstGrant;
  /** Signals that the present connections have been judged, whether they are trusted or not. */
  readonly verdict = new Signal();
  readonly #inactive: InactiveMemory;
  readonly #seals: SealCheck;
  readonly #timer: NodeJS.Timeout;
  #running: Promise<void> | null = null;
  #next: Promise<void> | null = null;
  /** The link's epoch in which the cached records were read. In another epoch, notices may have been missed. */
  #heldEpoch = 0;
  #asking: Promise<void> | null = null;
  /** Whether the gateway has stopped acknowledging. */
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

  /** Resolves after a beat that began at this call or later. */
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

  /** Tries to become fresh again within a bounded time. Returns at once where that is known to fail. */
  async catchUp(): Promise<void> {
    if ((!this.standing.lease.enrolled && this.standing.proof !== null) || this.standing.filling !== null) return;
    // During an outage, a further beat would only delay the request.
    if (this.standing.hasReplied || this.standing.last === null) await this.#running;
    if (!this.standing.fresh && this.standing.hasReplied && this.#options.link.connected) await this.beat();
  }

  /**
   * Handles changed records. While the store is not trusted, no replacement can be read from it.
   * @returns whether to drop them now. Otherwise they stay, as stale, until a beat trusts the store again and drops
   * everything.
   */
  changed(): boolean {
    if (this.standing.state.isFormer || this.standing.isBelieved) return true;
    this.#heldEpoch = NaN;
    return false;
  }

  /** Any record may have changed: cached records are stale until a beat trusts the store again and drops them. */
  everythingChanged(): void {
    // An earlier release of the registry does not wait for a gateway that does not trust its store.
    if (this.standing.state.isFormer) this.#drop();
    this.#heldEpoch = NaN;
    this.markUnverified();
  }

  /** Trusts no earlier result until the next beat has succeeded. */
  markUnverified(): void {
    this.standing.markUnverified();
    void this.beat();
  }

  /**
   * Stops, and writes `leaving`, so that the registry does not wait for this gateway. Call it only after the last
   * decision.
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
      // The registry's database may lack revocations that this cache has: report them before adopting another
      // generation.
      const { last } = this.standing;
      if (found?.generation !== last?.generation) await this.#inactive.report(last, epoch);
      if (found === null || meta === null) {
        this.standing.judge(epoch, false);
        outage.report(this.standing.state.reason);
        return;
      }
      if (servers === null && found.replicas !== null) throw new Error('INFO has not yet identified this Redis server');
      await link.checkParts(meta, found.generation);
      // On a busy machine, the check of a Cluster takes longer than a verdict holds. Its masters confirm afterwards.
      const at = link.witness(found.replicas ?? 0) === 'masters' ? this.standing.lease.now() : begunAt;
      await link.catchUp();
      if (this.standing.epoch !== epoch) return; // this result is for the old connections; another beat was requested
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
        // Requests wait for the verdict on new connections: judged before the witnesses reply, a failover would refuse
        // them. A sentinel that hangs must not delay what can be decided without it.
        if (!this.standing.isWitnessed) await this.#asking;
        if (this.standing.epoch !== epoch) return;
      }
      this.standing.judge(epoch, true);
      this.firstGrant.beat(this.standing.lease.enrolled);
      if (this.standing.lease.enrolled) this.#inactive.clear();
      outage.report(link.partLost);
    } catch (error) {
      this.standing.failure = error instanceof Error ? error.message : String(error);
      // A single failed beat is not an outage, unless a connection reports an error.
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

  /** A full server, or one that cannot save, refuses the registry's writes too. Its records can still be read. */
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

/** How long a new gateway waits for its grant before it takes traffic without one. */
const grantTimeoutMilliseconds = 2_000;

/** Waits for the gateway's first grant. Without a grant, each request reads Redis, so a short wait is worthwhile. */
export class FirstGrant {
  readonly #onNotice: (notice: string) => void;
  #since: number | null = null;
  #isOver = false;

  /** @param onNotice called when the wait ends without a grant */
  constructor(onNotice: (notice: string) => void) {
    this.#onNotice = onNotice;
  }

  /** Why the gateway is not ready; null once it is. */
  get reason(): string | null {
    const waits = !this.#isOver && this.#since !== null && performance.now() - this.#since < grantTimeoutMilliseconds;
    return waits ? 'waiting for the registry to enrol this gateway' : null;
  }

  /** Records a successful beat. @param hasLeave whether the gateway is enrolled, so that it may cache records */
  beat(hasLeave: boolean): void {
    if (this.#isOver) return;
    this.#since ??= performance.now();
    const isMissing = !hasLeave && performance.now() - this.#since >= grantTimeoutMilliseconds;
    this.#isOver = hasLeave || isMissing;
    if (isMissing)
      this.#onNotice(
        'the registry has not enrolled this gateway: it caches no records, and reads Redis for each request',
      );
  }
}
