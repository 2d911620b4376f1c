import type { Eventual } from '../../../gateway/eventual.js';
import { type Clock } from '../../../gateway/ports.js';
import type { CachePartStats, RecordStats, RecordRead, Records } from '../../../gateway/record-key-store.js';
import { KeyStoreUnavailable } from '../../../gateway/key-store.js';
import {
  type CompiledKey,
  type CompiledMerchant,
  compileKeyRecord,
  compileMerchantRecord,
  MalformedRecord,
} from '../../../gateway/records.js';
import { KnownKeys } from '../../cache/known-keys.js';
import { type CacheLimits, RecordCache } from '../../cache/record-cache.js';
import { ClusterLink } from './cluster-link.js';
import type { RedisAddress } from '../connection.js';
import { Outage, type OutageEvents } from '../outage.js';
import { RecordNames } from '../record-names.js';
import { readRecordText } from '../record-text.js';
import type { LinkEvents, RecordsLink } from '../records-link.js';
import { noSeals, type OnMalformed, SealCheck, type Seals } from '../seal.js';
import { ServerLink } from '../server/server-link.js';
import type { GatewayIdentity } from './acknowledgement-text.js';
import type { AheadReaderOptions } from './ahead-reader.js';
import { Heartbeat } from './heartbeat.js';
import { inactiveAmong } from './inactive-memory.js';
import { MissingRecords } from './missing-records.js';
import { Preload, type PreloadEvents } from './preload.js';
import { ProvenReads } from './proven-reads.js';
import { RevisionFloor } from './revision-floor.js';
import { noReply } from './standing.js';

/** Dependencies and callbacks of `RedisRecords`. */
export interface RedisRecordsOptions extends OutageEvents {
  readonly address: RedisAddress;
  readonly prefix: string;
  readonly cache: CacheLimits;
  readonly identity: GatewayIdentity;
  readonly clock: Clock;
  /** Verifies the seals (HMACs) of records; omitted: seals are not verified. */
  readonly seals?: Seals;
  readonly onMalformed: OnMalformed;
  /** Called for conditions that operators should know, although requests are still served. */
  readonly onNotice?: (notice: string) => void;
  /** Called each time the servers become reachable, with their eviction policies (`maxmemory-policy`). */
  readonly onPolicies?: (policies: readonly string[]) => void;
  /** Returns why Redis is unreachable; null if the reason is not known. */
  readonly whyAway?: (() => string | null) | undefined;
  /** Callbacks of the preload, which caches records before requests need them; undefined: no preload. */
  readonly preload?: PreloadEvents | undefined;
}

/** Reads the key and merchant records of docs/records.md from Redis, and caches them while the registry permits it. */
export class RedisRecords implements Records {
  readonly #link: RecordsLink;
  readonly #names: RecordNames;
  readonly #heartbeat: Heartbeat;
  readonly #missing: MissingRecords;
  readonly #keys: RecordCache<CompiledKey>;
  readonly #merchants: RecordCache<CompiledMerchant>;
  readonly #known: KnownKeys;
  readonly #floor: RevisionFloor;
  readonly #preload: Preload | null;
  readonly #seals: Seals;
  readonly #onMalformed: OnMalformed;
  readonly #whyAway: () => string | null;
  #closing: Promise<void> | null = null;
  readonly #refused = { malformed: 0, missing: 0, unsealed: 0, wrong_seal: 0, earlier_generation: 0 };

  constructor(options: RedisRecordsOptions) {
    const { address, cache, clock, identity, seals = noSeals } = options;
    const onMalformed: OnMalformed = (storeKey, problem, reason) => {
      this.#refused[reason] += 1;
      options.onMalformed(storeKey, problem, reason);
    };
    const names = new RecordNames(options.prefix);
    const check = new SealCheck(seals, onMalformed);
    [this.#names, this.#onMalformed, this.#seals] = [names, onMalformed, seals];
    this.#whyAway = options.whyAway ?? (() => null);
    const outage = new Outage(options);
    const events: LinkEvents = {
      onChanged: (names) => {
        this.#missing.changed(names);
        this.#known.note(this.#names.lookupIdsOf(names));
        if (this.#heartbeat.changed()) this.#drop(this.#names.lookupIdsOf(names), this.#names.merchantIdsOf(names));
        if (names.includes(this.#names.meta)) this.#heartbeat.markUnverified();
        else if (names.includes(this.#names.revision)) void this.#heartbeat.beat();
      },
      onEverythingChanged: () => {
        this.#becomeStale();
        this.#heartbeat.everythingChanged();
      },
      onListening: () => {
        this.#missing.missed();
        // Start a heartbeat at once: until it drops the cached records, requests can still get them as stale records.
        void this.#heartbeat.beat();
      },
      onDisconnected: () => {
        this.#becomeStale();
      },
      onReady: () => {
        options.onPolicies?.(this.#link.policies);
        void this.#heartbeat.beat();
      },
    };
    this.#link =
      address.cluster === null
        ? new ServerLink(address, names, events, outage.failed, seals)
        : new ClusterLink(address, names, events, outage.failed);
    this.#heartbeat = new Heartbeat({
      ...{ link: this.#link, outage, names, identity, clock, seals: check },
      checkMeta: seals.areOn ? check.require.bind(check, names.meta) : null,
      maxStaleMilliseconds: cache.maxStaleMilliseconds,
      onCaughtUp: (hasMissed) => {
        if (hasMissed) this.#dropAll();
        else for (const held of [this.#keys, this.#merchants]) held.closeLookUps();
      },
      onForget: () => {
        this.#dropAll();
      },
      inactive: () => inactiveAmong(this.#keys.held(), this.#merchants.held()),
      holds: () => this.#keys.stats.known.entries > 0,
      onNotice: options.onNotice ?? (() => undefined),
    });
    this.#missing = new MissingRecords({
      ...{ link: this.#link, reads: new ProvenReads(this.#link, this.#heartbeat), standing: this.#heartbeat.standing },
      ...{ names, instanceId: identity.instanceId, seals },
    });
    // The caches are keyed by id, not by Redis key: a Redis key would have to be built and hashed for each lookup.
    this.#known = new KnownKeys(cache.maxEntries);
    this.#keys = new RecordCache(cache, this.#heartbeat, (id) => this.#readKey(id));
    this.#merchants = new RecordCache(cache, this.#heartbeat, (id) => this.#readMerchant(id));
    this.#floor = new RevisionFloor(cache.maxEntries);
    const read: AheadReaderOptions = {
      ...{ link: this.#link, standing: this.#heartbeat.standing, environment: identity.environment },
      ...{ names: this.#names, keys: this.#keys, merchants: this.#merchants, maxEntries: cache.maxEntries },
      onSeen: (lookupIds) => {
        this.#known.note(lookupIds);
      },
      compileKey: (name, text) => this.#compile(name, text, compileKeyRecord),
      compileMerchant: (id, text) => this.#compile(this.#names.merchant(id), text, merchantOf(id)),
    };
    this.#preload = options.preload === undefined ? null : new Preload(read, options.preload);
  }

  key(lookupId: string): Eventual<RecordRead<CompiledKey>> {
    return this.#keys.get(lookupId);
  }

  merchant(merchantId: string): Eventual<RecordRead<CompiledMerchant>> {
    return this.#merchants.get(merchantId);
  }

  knowsKey(lookupId: string): boolean {
    return this.#keys.remembers(lookupId) || this.#known.has(lookupId);
  }

  unavailableReason(): string | null {
    const { reason } = this.#heartbeat.standing;
    return reason === noReply ? (this.#whyAway() ?? reason) : reason;
  }

  startingReason(): string | null {
    return this.#heartbeat.firstGrant.reason;
  }

  recordStats(): RecordStats {
    const [keys, merchants] = [this.#keys.stats, this.#merchants.stats];
    const sumOf = (half: 'known' | 'unknown'): CachePartStats => ({
      entries: keys[half].entries + merchants[half].entries,
      evictions: keys[half].evictions + merchants[half].evictions,
    });
    const held = { keys: keys.known.entries, merchants: merchants.known.entries };
    const preload = this.#preload && { state: this.#preload.state, ...held, seen: this.#preload.seen };
    return { known: sumOf('known'), unknown: sumOf('unknown'), preload, refused: this.#refused };
  }

  close(): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  async #close(): Promise<void> {
    this.#preload?.close();
    await this.#heartbeat.close();
    this.#link.close();
  }

  #drop(lookupIds: readonly string[], merchantIds: readonly string[]): void {
    const { last } = this.#heartbeat.standing;
    for (const id of lookupIds) this.#floor.raise(this.#names.key(id), this.#keys.peek(id), last);
    for (const id of merchantIds) this.#floor.raise(this.#names.merchant(id), this.#merchants.peek(id), last);
    this.#keys.drop(lookupIds);
    this.#merchants.drop(merchantIds);
    this.#preload?.changed(lookupIds, merchantIds);
  }

  #becomeStale(): void {
    this.#missing.missed();
    this.#keys.becomeStale();
    this.#merchants.becomeStale();
  }

  #dropAll(): void {
    this.#keys.dropAll();
    this.#merchants.dropAll();
    this.#preload?.restart();
  }

  async #readKey(id: string): Promise<CompiledKey | KeyStoreUnavailable | null> {
    const key = await this.#read(this.#names.key(id), compileKeyRecord);
    if (key !== null) this.#known.note([id]);
    return key;
  }

  /**
   * Reads the merchant of a key. If the merchant's record is missing, the store is damaged, and requests with the key
   * get 503.
   */
  async #readMerchant(id: string): Promise<CompiledMerchant | KeyStoreUnavailable | null> {
    const name = this.#names.merchant(id);
    const merchant = await this.#read(name, merchantOf(id));
    if (merchant === null)
      this.#onMalformed(name, 'the merchant record is missing, although the record of a key refers to it', 'missing');
    return merchant;
  }

  async #read<Compiled extends { readonly revision: number }>(
    name: string,
    compile: (value: unknown) => Compiled,
  ): Promise<Compiled | KeyStoreUnavailable | null> {
    return this.#compile(name, await this.#missing.text(name), compile);
  }

  #compile<Compiled extends { readonly revision: number }>(
    name: string,
    text: string | null,
    compile: (value: unknown) => Compiled,
  ): Compiled | KeyStoreUnavailable | null {
    try {
      const { generation } = this.#heartbeat.standing;
      const record = text === null ? null : compile(readRecordText(this.#seals, name, text, generation));
      this.#floor.check(name, record, generation);
      return record;
    } catch (error) {
      if (!(error instanceof MalformedRecord)) throw error;
      this.#onMalformed(name, error.message, error.reason);
      return new KeyStoreUnavailable(error.message, { cause: error });
    }
  }
}

/** Returns a parser for the record of this merchant. A record with another merchant id is malformed. */
function merchantOf(id: string): typeof compileMerchantRecord {
  return (value) => {
    const merchant = compileMerchantRecord(value);
    if (merchant.merchantId !== id)
      throw new MalformedRecord(`the record of merchant ${id} contains the id of another merchant`);
    return merchant;
  };
}
