import type { Environment } from '../../policy/key-format.js';
import { KeyStoreUnavailable } from '../../gateway/ports.js';
import type { RecordRead, Records } from '../../gateway/ports.js';
import { compileKeyRecord, compileMerchantRecord, MalformedRecord, parseMetaRecord } from '../../gateway/records.js';
import type { CompiledKey, CompiledMerchant } from '../../gateway/records.js';
import type { MetaRecord } from '../../gateway/records.js';
import type {
  InactiveReport,
  Position,
  RecordsStore,
  SeenGateways,
  StoreEntry,
  StoreLook,
} from '../../gateway/store-ports.js';

/** Records by their store key (`mg:meta`, `mg:key:<lookupId>`, `mg:merchant:<merchantId>`), as in the contract. */
export type StoredRecords = Readonly<Record<string, unknown>>;

const lookupIdForm = /^[0-9a-f]{64}$/;

/** The gateway in whose process the records are. */
export interface MemoryGateway {
  readonly instanceId: string;
  readonly environment: Environment;
  readonly host: string;
  readonly version: string;
  /** ISO 8601. */
  readonly startedAt: string;
}

/** No other process writes here, and what is here ends with this one. */
const server = 'memory';

/**
 * Records in the memory of the process, from a file or, where a registry runs in the same process, written by it. A
 * record is compiled when it is written; one that does not parse makes its own key or merchant unaskable and no other.
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
  #unavailableReason: string | null = 'the store is not seeded: it has no mg:meta record';
  #position: Position | null = null;

  /**
   * @param onMalformed told of each record that cannot be used: its store key and what is wrong with it
   * @param gateway the one that reads these records, as the registry shall see it; it drops nothing, because it holds nothing
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
      // Nobody's key has such a hash: it would be unknown, and its owner told that it is a bad one.
      const name = `mg:key:${lookupId}`;
      if (!lookupIdForm.test(lookupId)) onMalformed(name, 'its name is not a hash of 64 hex digits in lower case');
      if (key instanceof KeyStoreUnavailable || this.#merchants.has(key.merchantId)) continue;
      onMalformed(name, `there is no record mg:merchant:${key.merchantId}`);
    }
  }

  key(lookupId: string): RecordRead<CompiledKey> {
    return answer(this.#keys.get(lookupId));
  }

  merchant(merchantId: string): RecordRead<CompiledMerchant> {
    return answer(this.#merchants.get(merchantId));
  }

  knowsKey(lookupId: string): boolean {
    return this.#keys.has(lookupId);
  }

  unavailableReason(): string | null {
    return this.#unavailableReason;
  }

  cacheFigures(): null {
    return null;
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  look(): Promise<StoreLook> {
    const { revision = 0, change = null } = this.#position ?? {};
    return Promise.resolve({
      ...{ epoch: 0, servers: [server], replicas: 0, isWhole: true },
      ...{ meta: this.#meta, seal: 'none' as const, revision, change },
    });
  }

  begin(): Promise<void> {
    return Promise.resolve();
  }

  /** The registry of this process alone writes here, and in order: nothing of a later change is there. */
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

  /** The gateway reads what is published as it is written. */
  /** The gateway reads these very records: it remembers nothing that they do not say. */
  async *reports(): AsyncGenerator<InactiveReport> {
    // There are none.
  }

  removeReports(): Promise<void> {
    return Promise.resolve();
  }

  gateways(): Promise<SeenGateways> {
    const { generation = null } = this.#meta ?? {};
    const { revision = 0 } = this.#position ?? {};
    const acknowledgement =
      this.#gateway === null
        ? null
        : { ...this.#gateway, revision, ...(generation === null ? {} : { generation }), lifetimeMilliseconds: 1 };
    return Promise.resolve({
      ...{ epoch: 0, generation, isSealed: false, isHearing: true, hasReports: false },
      gateways:
        acknowledgement === null
          ? []
          : [
              {
                instanceId: acknowledgement.instanceId,
                isSealed: false,
                silentMilliseconds: 0,
                clockSkewMilliseconds: 0,
                acknowledgement,
              },
            ],
    });
  }

  /** The one gateway acknowledges as it is asked. */
  nextAcknowledgement(): Promise<void> {
    return new Promise(() => undefined);
  }

  memory(): Promise<null> {
    return Promise.resolve(null);
  }

  /** What is here ends with the process, so that no database is behind it. */
  read(): Promise<readonly StoreEntry[]> {
    return Promise.resolve([]);
  }

  /** It holds nothing, so it needs no leave for that. */
  grant(): Promise<void> {
    return Promise.resolve();
  }

  removeGateways(): Promise<void> {
    return Promise.resolve();
  }

  // eslint-disable-next-line @typescript-eslint/require-await -- the port's names come one by one from other stores
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
      const problem = error instanceof Error ? error.message : 'it is malformed';
      this.#unavailableReason = `its mg:meta record cannot be used: ${problem}`;
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

function answer<Compiled>(found: Compiled | KeyStoreUnavailable | undefined): RecordRead<Compiled> {
  if (found instanceof KeyStoreUnavailable) throw found;
  return { record: found ?? null, source: 'store', ageMilliseconds: 0 };
}
