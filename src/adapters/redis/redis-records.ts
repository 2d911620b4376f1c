import type { Redis } from 'ioredis';
import { KeyStoreUnavailable } from '../../gateway/ports.js';
import type { Clock, RecordRead, Records } from '../../gateway/ports.js';
import { compileKeyRecord, compileMerchantRecord, MalformedRecord } from '../../gateway/records.js';
import type { CompiledKey, CompiledMerchant } from '../../gateway/records.js';
import { RecordCache } from '../cache/record-cache.js';
import type { CacheLimits } from '../cache/record-cache.js';
import { connectRedis } from './connection.js';
import type { RedisAddress } from './connection.js';
import { Heartbeat } from './heartbeat.js';
import type { GatewayIdentity } from './heartbeat.js';
import { InvalidationListener } from './invalidation-listener.js';
import { RecordNames } from './record-names.js';
import { generationOf } from './store-state.js';

/** What the records in Redis are read with. */
export interface RedisRecordsOptions {
  readonly address: RedisAddress;
  readonly prefix: string;
  readonly cache: CacheLimits;
  readonly identity: GatewayIdentity;
  readonly clock: Clock;
  /** Told of a record that cannot be used: its name and what is wrong with it. */
  readonly onMalformed: (storeKey: string, problem: string) => void;
  /** Told of each failure of a connection. */
  readonly onConnectionError: (error: Error) => void;
}

/** The contract's records in Redis, held in memory for as long as they are known to be true. */
export class RedisRecords implements Records {
  readonly #redis: Redis;
  readonly #listening: Redis;
  readonly #names: RecordNames;
  readonly #heartbeat: Heartbeat;
  readonly #keys: RecordCache<CompiledKey>;
  readonly #merchants: RecordCache<CompiledMerchant>;
  readonly #onMalformed: RedisRecordsOptions['onMalformed'];

  constructor(options: RedisRecordsOptions) {
    const { address, cache, clock, identity } = options;
    this.#names = new RecordNames(options.prefix);
    this.#onMalformed = options.onMalformed;
    this.#redis = connectRedis(address, options.onConnectionError);
    this.#listening = connectRedis(address, options.onConnectionError);
    const listener = new InvalidationListener(this.#listening, this.#names.tracked, {
      onChanged: (names) => {
        this.#keys.drop(names);
        this.#merchants.drop(names);
        if (names.includes(this.#names.meta)) this.#heartbeat.doubt();
        else if (names.includes(this.#names.revision)) void this.#heartbeat.beat();
      },
      onEverythingChanged: () => {
        this.#keys.dropAll();
        this.#merchants.dropAll();
        this.#heartbeat.doubt();
      },
      onDeaf: () => {
        this.#keys.becomeStale();
        this.#merchants.becomeStale();
      },
    });
    this.#heartbeat = new Heartbeat({
      redis: this.#redis,
      listener,
      names: this.#names,
      identity,
      clock,
      maxStaleMilliseconds: cache.maxStaleMilliseconds,
    });
    this.#keys = new RecordCache(cache, this.#heartbeat, (name) => this.#read(name, compileKeyRecord));
    this.#merchants = new RecordCache(cache, this.#heartbeat, (name) => this.#read(name, compileMerchantRecord));
  }

  key(lookupId: string): Promise<RecordRead<CompiledKey>> {
    return this.#keys.get(this.#names.key(lookupId));
  }

  merchant(merchantId: string): Promise<RecordRead<CompiledMerchant>> {
    return this.#merchants.get(this.#names.merchant(merchantId));
  }

  unavailableReason(): string | null {
    return this.#heartbeat.reason;
  }

  async close(): Promise<void> {
    await this.#heartbeat.close();
    this.#redis.disconnect();
    this.#listening.disconnect();
  }

  async #read<Compiled>(
    name: string,
    compile: (value: unknown) => Compiled,
  ): Promise<Compiled | KeyStoreUnavailable | null> {
    if (!this.#heartbeat.answers) throw new KeyStoreUnavailable('Redis does not answer');
    const { generation } = this.#heartbeat;
    if (generation === null)
      throw new KeyStoreUnavailable(this.#heartbeat.reason ?? 'it is not known whether the store is seeded');
    const text = await this.#get(name);
    if (text !== null) return this.#compile(name, text, compile);
    await this.#requireSeeded(generation);
    return null;
  }

  /** That a record is not there is an answer only if the store was seeded all the while, and with the same records. */
  async #requireSeeded(generation: string): Promise<void> {
    const meta = await this.#get(this.#names.meta);
    try {
      if (generationOf(meta) === generation) return;
    } catch (error) {
      if (!(error instanceof MalformedRecord)) throw error;
    }
    this.#heartbeat.doubt();
    throw new KeyStoreUnavailable('the store was not seeded all the while');
  }

  #compile<Compiled>(
    name: string,
    text: string,
    compile: (value: unknown) => Compiled,
  ): Compiled | KeyStoreUnavailable {
    try {
      return compile(parseJson(text));
    } catch (error) {
      if (!(error instanceof MalformedRecord)) throw error;
      this.#onMalformed(name, error.message);
      return new KeyStoreUnavailable(error.message, { cause: error });
    }
  }

  async #get(name: string): Promise<string | null> {
    try {
      return await this.#redis.get(name);
    } catch (error) {
      throw new KeyStoreUnavailable('Redis could not be asked', { cause: error });
    }
  }
}

/** @throws MalformedRecord whose message does not quote the text: it might hold what should not be there */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new MalformedRecord('the record is not JSON');
  }
}
