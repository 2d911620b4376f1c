import type { Environment } from '../../policy/key-format.js';
import { KeyStoreUnavailable } from '../../gateway/key-store.js';
import type { RecordRead, Records } from '../../gateway/record-key-store.js';
import { compileKeyRecord, compileMerchantRecord, MalformedRecord, parseMetaRecord } from '../../gateway/records.js';
import type { CompiledKey, CompiledMerchant } from '../../gateway/records.js';
import type { MetaRecord } from '../../gateway/records.js';
import type {
  InactiveReport,
  Position,
  RecordsStore,
  SeenGateways,
  StoreEntry,
  StoreSnapshot,
} from '../../gateway/store-ports.js';

/** Records by store key: `mg:meta`, `mg:key:<lookupId>` and `mg:merchant:<merchantId>`, as in docs/records.md. */
export type StoredRecords = Readonly<Record<string, unknown>>;

const lookupIdForm = /^[0-9a-f]{64}$/;

/** The gateway in whose process the records are stored. */
export interface MemoryGateway {
  readonly instanceId: string;
  readonly environment: Environment;
  readonly host: string;
  readonly version: string;
  /** Start time of the gateway, ISO 8601. */
  readonly startedAt: string;
}

/**
 * The id of this store, in place of the run id of a Redis server. A run id changes with each restart of the server. A
 * constant suffices here, because this store ends with the process and no other server can take over.
 */
const server = 'memory';

/**
 * Records in process memory, loaded from a file or written by a registry in the same process. Each record is compiled
 * (parsed and checked) when it is written. A malformed record makes only its own key or merchant unavailable.
 */
export class MemoryRecords implements Records, RecordsStore {
  readonly endsWithProcess = true;
  readonly sealIds: readonly string[] = [];
  readonly canFailOver = false;
  readonly watched = null;
  readonly inbox = null;
  readonly #keys = new Map<string, CompiledKey | KeyStoreUnavailable>();
  readonly #merchants = new Map<string, CompiledMerchant | KeyStoreUnavailable>();
  readonly #onMalformed: (storeKey: string, problem: string) => void;
  readonly #gateway: MemoryGateway | null;
  #meta: MetaRecord | null = null;
  #unavailableReason: string | null = 'the store has no mg:meta record';
  #position: Position | null = null;

  /**
   * @param onMalformed called with a store key and the problem in words, for each malformed record or record name, and
   * for each key record whose merchant record is missing
   * @param gateway the gateway that reads these records, reported to the registry by `gateways()`; null: no gateway
   */
  constructor(
    records: StoredRecords,
    onMalformed: (storeKey: string, problem: string) => void = () => undefined,
    gateway: MemoryGateway | null = null,
  ) {
    this.#onMalformed = onMalformed;
    this.#gateway = gateway;
    if (Object.hasOwn(records, 'mg:meta')) this.#readMeta(records['mg:meta']);
    for (const [storeKey, value] of Object.entries(records)) this.#put(storeKey, value);
    for (const [lookupId, key] of this.#keys) {
      // Report a malformed record name. An operator may have mistyped the hash of a key, and the gateway would reject
      // that key as unknown.
      const name = `mg:key:${lookupId}`;
      if (!lookupIdForm.test(lookupId))
        onMalformed(name, 'the record name must end with a hash of 64 lower-case hex digits');
      if (key instanceof KeyStoreUnavailable || this.#merchants.has(key.merchantId)) continue;
      onMalformed(name, `the merchant record mg:merchant:${key.merchantId} is missing`);
    }
  }

  key(lookupId: string): RecordRead<CompiledKey> {
    return readResultOf(this.#keys.get(lookupId));
  }

  merchant(merchantId: string): RecordRead<CompiledMerchant> {
    return readResultOf(this.#merchants.get(merchantId));
  }

  knowsKey(lookupId: string): boolean {
    return this.#keys.has(lookupId);
  }

  unavailableReason(): string | null {
    return this.#unavailableReason;
  }

  recordStats(): null {
    return null;
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  snapshot(): Promise<StoreSnapshot> {
    const { revision = 0, change = null } = this.#position ?? {};
    return Promise.resolve({
      ...{ epoch: 0, servers: [server], replicas: 0, isWhole: true },
      ...{ meta: this.#meta, seal: 'none' as const, revision, change },
    });
  }

  begin(): Promise<void> {
    return Promise.resolve();
  }

  /**
   * Writes without a check for newer records, because only the registry of this process writes, and it writes its
   * changes in order. Returns the number of skipped entries, which is always 0.
   */
  write(entries: readonly StoreEntry[]): Promise<number> {
    for (const { name, value } of entries) {
      if (value === null) this.#remove(`mg:${name}`);
      else this.#put(`mg:${name}`, value);
    }
    return Promise.resolve(0);
  }

  rewrite(entries: readonly StoreEntry[]): Promise<number> {
    return this.write(entries);
  }

  publish(position: Position): Promise<void> {
    this.#position = position;
    return Promise.resolve();
  }

  complete(meta: MetaRecord, position: Position): Promise<void> {
    this.#position = position;
    this.#readMeta(meta);
    return Promise.resolve();
  }

  /**
   * Yields no reports. A report lists the inactive keys and merchants that a gateway remembers. This gateway reads the
   * registry's own records, so it cannot know a revocation that the registry has lost.
   */
  async *reports(): AsyncGenerator<InactiveReport> {
    // Yields nothing.
  }

  removeReports(): Promise<void> {
    return Promise.resolve();
  }

  gateways(): Promise<SeenGateways> {
    const { generation = null } = this.#meta ?? {};
    const { revision = 0 } = this.#position ?? {};
    const state = { epoch: 0, generation, isSealed: false, isFresh: true, hasReports: false };
    if (this.#gateway === null) return Promise.resolve({ ...state, gateways: [] });
    const gateway = {
      ...{ instanceId: this.#gateway.instanceId, isSealed: false, silentMilliseconds: 0, clockSkewMilliseconds: 0 },
      acknowledgement: {
        ...{ ...this.#gateway, revision, lifetimeMilliseconds: 1 },
        ...(generation === null ? {} : { generation }),
      },
    };
    return Promise.resolve({ ...state, gateways: [gateway] });
  }

  /**
   * Never resolves, because the registry need not wait for an acknowledgement. The gateway reads the records of this
   * object directly, so `gateways()` always reports that the gateway has applied the newest change.
   */
  nextAcknowledgement(): Promise<void> {
    return new Promise(() => undefined);
  }

  memory(): Promise<null> {
    return Promise.resolve(null);
  }

  /** Returns no records: the registry in this process starts with an empty store, so no earlier records exist. */
  read(): Promise<readonly StoreEntry[]> {
    return Promise.resolve([]);
  }

  /** Does nothing. A grant allows a gateway to use its cache for a limited time, and this gateway has no cache. */
  grant(): Promise<void> {
    return Promise.resolve();
  }

  removeGateways(): Promise<void> {
    return Promise.resolve();
  }

  // eslint-disable-next-line @typescript-eslint/require-await -- other stores stream the names
  async *names(prefix: string): AsyncGenerator<string> {
    const names = [...this.#keys.keys()].map((id) => `key:${id}`);
    names.push(...[...this.#merchants.keys()].map((id) => `merchant:${id}`));
    yield* names.filter((name) => name.startsWith(prefix));
  }

  #readMeta(meta: unknown): void {
    try {
      this.#meta = parseMetaRecord(meta);
      this.#unavailableReason = null;
    } catch (error) {
      const problem = error instanceof Error ? error.message : 'the record is malformed';
      this.#unavailableReason = `the mg:meta record cannot be used: ${problem}`;
    }
  }

  #put(storeKey: string, value: unknown): void {
    const { kind, id } = partsOf(storeKey);
    if (kind === 'key') this.#keys.set(id, this.#compile(storeKey, value, compileKeyRecord));
    if (kind === 'merchant') this.#merchants.set(id, this.#compile(storeKey, value, compileMerchantRecord));
  }

  #remove(storeKey: string): void {
    const { kind, id } = partsOf(storeKey);
    if (kind === 'key') this.#keys.delete(id);
    if (kind === 'merchant') this.#merchants.delete(id);
  }

  #compile<Compiled>(
    storeKey: string,
    value: unknown,
    compile: (value: unknown) => Compiled,
  ): Compiled | KeyStoreUnavailable {
    try {
      return compile(value);
    } catch (error) {
      if (!(error instanceof MalformedRecord)) throw error;
      this.#onMalformed(storeKey, error.message);
      return new KeyStoreUnavailable(error.message, { cause: error });
    }
  }
}

function partsOf(storeKey: string): { kind: string; id: string } {
  const [, kind = '', id = ''] = /^mg:(key|merchant):(.*)$/s.exec(storeKey) ?? [];
  return { kind, id };
}

function readResultOf<Compiled>(found: Compiled | KeyStoreUnavailable | undefined): RecordRead<Compiled> {
  if (found instanceof KeyStoreUnavailable) throw found;
  return { record: found ?? null, source: 'store', ageMilliseconds: 0 };
}
