import { acknowledgementText, type GatewayIdentity } from './acknowledgement-text.js';
import { readGrant } from '../gateway-records.js';
import { InactiveMemory, type InactiveMemoryOptions } from './inactive-memory.js';
import type { Moment } from './lease.js';
import type { Outage } from '../outage.js';
import type { RecordNames } from '../record-names.js';
import type { AcknowledgementText, RecordsLink } from '../records-link.js';
import { noCheck, type SealCheck } from '../seal.js';
import { Standing, type StandingOptions } from './standing.js';
import type { BelievedState } from '../store-state.js';
import { Turn } from './turn.js';

/** What a heartbeat is made of. */
export interface HeartbeatOptions extends StandingOptions {
  readonly link: Omit<RecordsLink, 'names' | 'readSome' | 'text' | 'heard'>;
  readonly outage: Outage;
  readonly names: RecordNames;
  readonly identity: GatewayIdentity;
  readonly seals?: SealCheck;
  /** Told when every notice was heard, before the revision is acknowledged; and whether any may have been missed since the last time. */
  readonly onCaughtUp: (hasMissed: boolean) => void;
  /** Told when nothing may be held any more: the registry does not wait for this gateway. */
  readonly onForget: () => void;
  /** The keys and merchants that are held, and are inactive or end some day. */
  readonly inactive: InactiveMemoryOptions['held'];
}

const everyMilliseconds = 500;
/** An echo of the registry that is older does not do: others are asked. */
const oldEchoMilliseconds = 1_000;

/**
 * Knows up to which moment everything that is held is true, and acknowledges it. A beat reads the newest revision,
 * catches up with the notices, and then acknowledges that revision: a record is written before its revision is, so
 * whatever changed up to it has been dropped by then. What a beat found out holds for the connections that it used, and no others.
 */
export class Heartbeat {
  readonly #options: HeartbeatOptions;
  readonly standing: Standing;
  /** Why no traffic should come yet, though requests are answered. */
  readonly firstGrant: FirstGrant;
  /** When the connections of the moment were judged, well or not. */
  readonly verdict = new Turn();
  readonly #inactive: InactiveMemory;
  readonly #seals: SealCheck;
  readonly #timer: NodeJS.Timeout;
  #running: Promise<void> | null = null;
  #next: Promise<void> | null = null;
  /** The epoch of the link since which what is held was read: in another one notices may have been missed. */
  #heldEpoch = 0;
  #asking: Promise<void> | null = null;
  /** Whether it acknowledges no more. */
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

  /** Milliseconds since everything held was known to be true; for ever where nothing may be held. */
  get sinceKnownTrue(): number {
    return this.standing.sinceKnownTrue;
  }

  /** For how long after that it may be served. */
  get staleMilliseconds(): number {
    return this.standing.staleMilliseconds;
  }

  /** Whether what is held can be believed without asking. */
  get fresh(): boolean {
    return this.standing.fresh;
  }

  /** Why nothing can be decided; null while it can, if only from what is held. */
  get reason(): string | null {
    return this.standing.reason;
  }

  /** Resolves after a beat that began when this was called, or later. */
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

  /** Tries to be fresh again, in bounded time; where it is known that this cannot be, at once. */
  async catchUp(): Promise<void> {
    if ((!this.standing.lease.enrolled && this.standing.proof !== null) || this.standing.filling !== null) return;
    // During an outage each would only hold a request up.
    if (this.standing.answers || this.standing.last === null) await this.#running;
    if (!this.fresh && this.standing.answers && this.#options.link.hearing) await this.beat();
  }

  /**
   * Takes in that records have changed. A store that is not believed has nothing to replace them with.
   * @returns whether to drop them now; otherwise they stay, as stale, until a beat believes the store again and everything is dropped
   */
  changed(): boolean {
    if (this.standing.state.isFormer || this.standing.isBelieved) return true;
    this.#heldEpoch = NaN;
    return false;
  }

  /** Anything may have changed: what is held is stale until a beat believes the store again, and is dropped then. */
  everythingChanged(): void {
    // The registry's former release does not wait for a gateway that does not believe its store.
    if (this.standing.state.isFormer) this.#drop();
    this.#heldEpoch = NaN;
    this.doubt();
  }

  /** Takes nothing for granted any more until the next beat. */
  doubt(): void {
    this.standing.doubt();
    void this.beat();
  }

  /** Stops, and says so, so that nobody waits for this gateway. To be called after the last decision. */
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
    const { beat, at } = this.standing.lease.begin();
    if (this.standing.lease.isOver) this.#forget();
    const epoch = this.standing.epoch;
    let answered = false;
    try {
      const [meta, newest] = await link.readState();
      answered = true;
      const { servers } = link;
      const found = this.standing.judgeState(meta, newest, servers);
      // The registry's database may lack what is held here: it has to know before another generation is taken on.
      const { last } = this.standing;
      if (found?.generation !== last?.generation) await this.#inactive.report(last, epoch);
      if (found === null || meta === null) {
        this.standing.judge(epoch, false);
        outage.report(this.standing.state.reason);
        return;
      }
      if (servers === null && found.replicas !== null) throw new Error('it is not known yet which server this is');
      await link.catchUp(meta, found.generation);
      if (this.standing.epoch !== epoch) return; // what was found is another server's; another beat has been asked for
      this.standing.reconsider();
      onCaughtUp(link.epoch !== this.#heldEpoch);
      this.#heldEpoch = link.epoch;
      const acknowledgement = this.#textOf(found, beat);
      const grant = await link
        .acknowledge(acknowledgement, names.grant(identity.instanceId))
        .catch((error: unknown) => this.#notTaken(error, found, epoch));
      if (this.standing.lease.isOver) this.#forget();
      if (this.standing.epoch !== epoch) return;
      this.standing.acknowledgement.put(at);
      this.standing.adopt(found);
      const isAsked = found.replicas !== null && link.witness(found.replicas) === 'others';
      if (found.replicas === null) this.standing.lease.assume(found.generation);
      else this.#granted(this.#seals.opened(names.grant(identity.instanceId), grant), found.generation);
      if (!isAsked) this.standing.lease.sure(at);
      this.standing.judge(epoch, true);
      if (isAsked && this.standing.lease.sinceEchoed > oldEchoMilliseconds) {
        this.#asking ??= this.#askOthers(acknowledgement, found.replicas, at, epoch);
        // A sentinel that hangs holds nothing up that can be decided without it.
        if (this.standing.proof === null) await this.#asking;
      }
      this.standing.goodAt = at.monotonic;
      this.firstGrant.beat(this.standing.lease.enrolled);
      if (this.standing.lease.enrolled) this.#inactive.clear();
      outage.report(link.partLost);
    } catch (error) {
      this.standing.failure = error instanceof Error ? error.message : String(error);
      // A single beat that fails is not an outage yet, unless a connection tells of one.
      if (!this.standing.isRecent) outage.report(String(error));
    } finally {
      this.standing.answers = answered;
      if (this.standing.isJudged) this.verdict.come();
    }
  }

  async #askOthers(acknowledgement: AcknowledgementText, replicas: number, at: Moment, epoch: number): Promise<void> {
    const isConfirmed = await this.#options.link.confirm(acknowledgement, replicas);
    this.#asking = null;
    if (this.standing.lease.isOver) this.#forget();
    if (isConfirmed && this.standing.epoch === epoch) this.standing.lease.sure(at);
  }

  /** A server that is full, or cannot save, refuses the registry as well: it can still be asked. */
  #notTaken(error: unknown, found: BelievedState, epoch: number): never {
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
    const said = { beat, lifetimeMilliseconds, now: Math.max(0, Math.round(clock.now())), ...leaving };
    return acknowledgementText(identity, found, said, names.gateway(identity.instanceId), this.#seals.seals);
  }
}

/** How long a gateway that has started waits for its grant before it takes traffic without one. */
const patienceMilliseconds = 2_000;

/** The first grant of a gateway. Without one it asks Redis for each request, so it is worth a short wait. */
export class FirstGrant {
  readonly #onNotice: (notice: string) => void;
  #since: number | null = null;
  #isOver = false;

  /** @param onNotice told when it is waited for no more */
  constructor(onNotice: (notice: string) => void) {
    this.#onNotice = onNotice;
  }

  /** Why no traffic should come yet; null where it may. */
  get reason(): string | null {
    const waits = !this.#isOver && this.#since !== null && performance.now() - this.#since < patienceMilliseconds;
    return waits ? 'waiting for the registry to enrol this gateway' : null;
  }

  /** Takes in a beat that succeeded. @param hasLeave whether the gateway may hold records */
  beat(hasLeave: boolean): void {
    if (this.#isOver) return;
    this.#since ??= performance.now();
    const isMissing = !hasLeave && performance.now() - this.#since >= patienceMilliseconds;
    this.#isOver = hasLeave || isMissing;
    if (isMissing)
      this.#onNotice(
        'the registry has not enrolled this gateway: it holds no records, and asks Redis for each request',
      );
  }
}
