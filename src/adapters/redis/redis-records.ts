import { setTimeout as wait } from 'node:timers/promises';
import { KeyStoreUnavailable } from '../../gateway/ports.js';
import type { Eventual } from '../../gateway/eventual.js';
import type { CacheFigures, Clock, HeldFigures, RecordRead, Records } from '../../gateway/ports.js';
import { compileKeyRecord, compileMerchantRecord, MalformedRecord, parseRecordText } from '../../gateway/records.js';
import type { CompiledKey, CompiledMerchant } from '../../gateway/records.js';
import { RecordCache } from '../cache/record-cache.js';
import type { CacheLimits } from '../cache/record-cache.js';
import type { GatewayIdentity } from './acknowledgement-text.js';
import { SlotMoved } from './cluster/cluster-calls.js';
import { ClusterLink } from './cluster/cluster-link.js';
import type { RedisAddress } from './connection.js';
import { Heartbeat } from './heartbeat.js';
import { inactiveAmong } from './inactive-memory.js';
import { MissingRecords } from './missing-records.js';
import { Outage } from './outage.js';
import type { OutageEvents } from './outage.js';
import { RecordNames } from './record-names.js';
import { StoreUnseeded } from './records-link.js';
import type { LinkEvents, RecordsLink } from './records-link.js';
import { ServerLink } from './server-link.js';

/** What the records in Redis are read with. */
export interface RedisRecordsOptions extends OutageEvents {
  readonly address: RedisAddress;
  readonly prefix: string;
  readonly cache: CacheLimits;
  readonly identity: GatewayIdentity;
  readonly clock: Clock;
  /** Told of a record that cannot be used: its name and what is wrong with it. */
  readonly onMalformed: (storeKey: string, problem: string) => void;
  /** Told of what operators should know, though requests are answered. */
  readonly onNotice?: (notice: string) => void;
  /** Told what the servers do when they are full (`maxmemory-policy`), each time that they can be asked again. */
  readonly onPolicies?: (policies: readonly string[]) => void;
}

/** A look-up is repeated if its connection was opened anew, or the generation changed, before its reply came. */
const attempts = 4;
/** Each takes at most a quarter of a second. One is enough for a planned failover; a busy machine needs more. */
const turnsOfPatience = 6;
/** A command can fail this long before the end of its connection is noticed. */
const endMilliseconds = 5;

/** The contract's records in Redis, held in memory for as long as they are known to be true. */
export class RedisRecords implements Records {
  readonly #link: RecordsLink;
  readonly #names: RecordNames;
  readonly #heartbeat: Heartbeat;
  readonly #missing: MissingRecords;
  readonly #keys: RecordCache<CompiledKey>;
  readonly #merchants: RecordCache<CompiledMerchant>;
  readonly #onMalformed: RedisRecordsOptions['onMalformed'];

  constructor(options: RedisRecordsOptions) {
    const { address, cache, clock, identity } = options;
    this.#names = new RecordNames(options.prefix);
    this.#onMalformed = options.onMalformed;
    const outage = new Outage(options);
    const events: LinkEvents = {
      onChanged: (names) => {
        this.#keys.drop(this.#names.lookupIdsOf(names));
        this.#merchants.drop(this.#names.merchantIdsOf(names));
        this.#missing.changed(names.map((name) => this.#names.recordOf(name)));
        if (names.includes(this.#names.meta)) this.#heartbeat.doubt();
        else if (names.includes(this.#names.revision)) void this.#heartbeat.beat();
      },
      onEverythingChanged: () => {
        this.#heartbeat.everythingChanged();
      },
      onListening: () => {
        // What is held is dropped by the next beat, before that acknowledges a revision. Until then it may be served as stale.
        void this.#heartbeat.beat();
      },
      onDeaf: () => {
        this.#keys.becomeStale();
        this.#merchants.becomeStale();
      },
      onReady: () => {
        options.onPolicies?.(this.#link.policies);
        void this.#heartbeat.beat();
      },
    };
    this.#link = new (address.cluster === null ? ServerLink : ClusterLink)(address, this.#names, events, outage.failed);
    this.#missing = new MissingRecords({ link: this.#link, names: this.#names, instanceId: identity.instanceId });
    this.#heartbeat = new Heartbeat({
      onBelieved: this.#missing.beat.bind(this.#missing),
      link: this.#link,
      outage,
      names: this.#names,
      identity,
      clock,
      maxStaleMilliseconds: cache.maxStaleMilliseconds,
      onCaughtUp: (hasMissed) => {
        for (const held of [this.#keys, this.#merchants]) {
          if (hasMissed) held.dropAll();
          else held.closeLookUps();
        }
      },
      onForget: () => {
        this.#keys.dropAll();
        this.#merchants.dropAll();
      },
      inactive: () => inactiveAmong(this.#keys.held(), this.#merchants.held()),
      holds: () => this.#keys.figures.known.entries > 0,
      onNotice: options.onNotice ?? (() => undefined),
    });
    // Held by their ids: a name would have to be made, and hashed, for each look-up.
    this.#keys = new RecordCache(cache, this.#heartbeat, (id) => this.#readKey(id));
    this.#merchants = new RecordCache(cache, this.#heartbeat, (id) => this.#readMerchant(id));
  }

  key(lookupId: string): Eventual<RecordRead<CompiledKey>> {
    return this.#keys.get(lookupId);
  }

  merchant(merchantId: string): Eventual<RecordRead<CompiledMerchant>> {
    return this.#merchants.get(merchantId);
  }

  unavailableReason(): string | null {
    return this.#heartbeat.reason;
  }

  startingReason(): string | null {
    return this.#heartbeat.firstGrant.reason;
  }

  cacheFigures(): CacheFigures {
    const [keys, merchants] = [this.#keys.figures, this.#merchants.figures];
    return { known: sumOf(keys.known, merchants.known), unknown: sumOf(keys.unknown, merchants.unknown) };
  }

  async close(): Promise<void> {
    await this.#heartbeat.close();
    this.#link.close();
  }

  async #readKey(id: string): Promise<CompiledKey | KeyStoreUnavailable | null> {
    const name = this.#names.key(id);
    const key = await this.#read(name, compileKeyRecord);
    if (key !== null && !(key instanceof KeyStoreUnavailable)) this.#missing.writtenWith(name, key.merchantId);
    return key;
  }

  /** A merchant is asked for because a key names it: one that is not there is damage, and whoever has the key gets 503. */
  async #readMerchant(id: string): Promise<CompiledMerchant | KeyStoreUnavailable | null> {
    const name = this.#names.merchant(id);
    const merchant = await this.#read(name, (value) => merchantRecordOf(id, value));
    if (merchant === null) this.#onMalformed(name, 'it is not there, and a key names it');
    return merchant;
  }

  async #read<Compiled>(
    name: string,
    compile: (value: unknown) => Compiled,
  ): Promise<Compiled | KeyStoreUnavailable | null> {
    const text = await this.#text(name);
    return text === null ? null : this.#compile(name, text, compile);
  }

  async #text(name: string): Promise<string | null> {
    try {
      return await this.#ask(name);
    } catch (error) {
      if (error instanceof StoreUnseeded) this.#heartbeat.doubt();
      if (!(error instanceof SlotMoved)) throw error;
      await this.#heartbeat.beat();
      return this.#ask(name);
    }
  }

  /**
   * What was answered counts only where it comes from a server that is believed still. Where the connection was opened anew meanwhile,
   * as in a failover, the look-up is repeated on the new one.
   */
  async #ask(name: string): Promise<string | null> {
    const patience = { turns: turnsOfPatience };
    for (let attempt = 1; ; attempt += 1) {
      const proof = await this.#heartbeat.proven(patience);
      const isProven = (): boolean => this.#heartbeat.standing.proof === proof;
      try {
        const text = await this.#textIn(name);
        if (isProven()) return text;
      } catch (error) {
        await wait(endMilliseconds);
        if (isProven() || attempt === attempts) throw error;
      }
      if (attempt === attempts) throw new KeyStoreUnavailable('the connection to Redis was opened anew meanwhile');
    }
  }

  async #textIn(name: string): Promise<string | null> {
    try {
      const { generation, epoch } = this.#heartbeat.standing;
      return await this.#missing.read(name, { generation, epoch });
    } catch (error) {
      if (error instanceof KeyStoreUnavailable) throw error;
      throw new KeyStoreUnavailable('Redis could not be asked', { cause: error });
    }
  }

  #compile<Compiled>(
    name: string,
    text: string,
    compile: (value: unknown) => Compiled,
  ): Compiled | KeyStoreUnavailable {
    try {
      return compile(parseRecordText(text));
    } catch (error) {
      if (!(error instanceof MalformedRecord)) throw error;
      this.#onMalformed(name, error.message);
      return new KeyStoreUnavailable(error.message, { cause: error });
    }
  }
}

function sumOf(one: HeldFigures, other: HeldFigures): HeldFigures {
  return { entries: one.entries + other.entries, evictions: one.evictions + other.evictions };
}

/** @throws MalformedRecord also where it is another merchant's */
function merchantRecordOf(id: string, value: unknown): CompiledMerchant {
  const merchant = compileMerchantRecord(value);
  if (merchant.merchantId !== id) throw new MalformedRecord(`the record of merchant ${id} is another merchant's`);
  return merchant;
}
