import type { MetaRecord } from '../../src/gateway/records.js';
import type {
  GatewayGrant,
  InactiveReport,
  Position,
  RecordInbox,
  RecordsStore,
  SeenGateways,
  StoredMeta,
  StoreEntry,
  StoreSnapshot,
  StoreMemory,
  WatchedRecords,
} from '../../src/gateway/store-ports.js';

/** The calls of a registry to its store. */
export type StoreCall =
  'snapshot' | 'complete' | 'write' | 'publish' | 'gateways' | 'names' | 'grant' | 'removeGateways';

/** A simulated gateway; `acknowledges`: whether it acknowledges published revisions. */
export interface TestGateway {
  readonly instanceId: string;
  readonly revision: number;
  readonly environment: 'live' | 'test';
  readonly host: string;
  readonly startedAt: string;
  readonly acknowledges: boolean;
  readonly silentMilliseconds: number;
  readonly lifetimeMilliseconds: number;
  readonly beat: number;
  readonly leaving: boolean;
  /**
   * The generation (an unbroken history of changes) that the gateway reports. Undefined: the one in the store's meta
   * record. Null: none, like a gateway of an earlier release.
   */
  readonly generation?: string | null;
  /** Whether its acknowledgement is sealed. */
  readonly isSealed?: boolean;
}

/** An in-memory store that can fail at any point; its gateways acknowledge at once. */
export class MemoryRecordsStore implements RecordsStore {
  readonly endsWithProcess = false;
  canFailOver = false;
  watched: WatchedRecords | null = null;
  inbox: RecordInbox | null = null;
  /** The ids of the sealing secrets; `seal` is the state of the meta record's seal. */
  sealIds: readonly string[] = [];
  seal: StoreSnapshot['seal'] = 'none';
  /** The run id of the server. */
  server = 'run-1';
  epoch = 0;
  replicas = 0;
  change: string | null = null;
  readonly grants = new Map<string, Omit<GatewayGrant, 'instanceId'>>();
  readonly records = new Map<string, object>();
  readonly calls: StoreCall[] = [];
  meta: StoredMeta | null = null;
  revision = 0;
  live: TestGateway[] = [];
  /** Decides whether a call fails: before any effect, halfway, or after its whole effect. */
  fails: (call: StoreCall) => 'before' | 'midway' | 'after' | null = () => null;
  /** Called before each write. */
  onWrite: (entries: readonly StoreEntry[]) => void | Promise<void> = () => undefined;

  snapshot(): Promise<StoreSnapshot> {
    return this.#do('snapshot', () => ({
      ...{ epoch: this.epoch, servers: [this.server], replicas: this.replicas, isWhole: this.whole },
      ...{ meta: this.meta, revision: this.revision, change: this.change, seal: this.seal },
    }));
  }

  held: StoreMemory = { policies: ['noeviction'], evictedKeys: 0, maxMemory: Infinity };

  memory(): Promise<StoreMemory> {
    return Promise.resolve(this.held);
  }

  complete(meta: MetaRecord, position: Position): Promise<void> {
    return this.#do('complete', () => {
      this.meta = meta;
      this.seal = this.sealIds.length === 0 ? 'none' : 'current';
      this.#publish(position);
    });
  }

  /** False if a part of the store was emptied or rolled back. */
  whole = true;

  /** Whether a write skips a record whose stored revision is later, as it does in Redis. False removes this guard. */
  keepsLater = true;

  begin(): Promise<void> {
    return Promise.resolve();
  }

  async write(entries: readonly StoreEntry[], change: number): Promise<number> {
    await this.onWrite(entries);
    return this.#do('write', (isWhole) => {
      let stayed = 0;
      for (const { name, value } of isWhole ? entries : entries.slice(0, Math.ceil(entries.length / 2))) {
        const held = revisionOf(this.records.get(name));
        if (this.keepsLater && held > Math.max(change, revisionOf(value))) stayed = Math.max(stayed, held);
        else if (value === null) this.records.delete(name);
        else this.records.set(name, JSON.parse(JSON.stringify(value)) as object);
      }
      return stayed;
    });
  }

  rewrite(entries: readonly StoreEntry[], revision: number): Promise<number> {
    return this.write(entries, revision);
  }

  publish(position: Position): Promise<void> {
    return this.#do('publish', () => {
      this.#publish(position);
    });
  }

  /** The gateways' reports of inactive keys and merchants. */
  inactive: InactiveReport[] = [];

  async *reports(): AsyncGenerator<InactiveReport> {
    yield* await Promise.resolve(this.inactive);
  }

  removeReports(names: readonly string[]): Promise<void> {
    this.inactive = this.inactive.filter(({ name }) => !names.includes(name));
    return Promise.resolve();
  }

  gateways(roster: readonly string[]): Promise<SeenGateways> {
    return this.#do('gateways', () => {
      const isNamed = this.meta !== null && this.meta.generation !== null && this.meta.servers?.join() === this.server;
      const own = this.meta?.generation ?? undefined;
      const gone = roster.filter((id) => this.live.every(({ instanceId }) => instanceId !== id));
      return {
        ...{ epoch: this.epoch, generation: isNamed ? (own ?? null) : null, isFresh: true },
        ...{ hasReports: this.inactive.length > 0, isSealed: this.seal === 'current' },
        gateways: [
          ...this.live.map(({ instanceId, silentMilliseconds, isSealed = false, generation = own, ...rest }) => ({
            ...{ instanceId, silentMilliseconds, clockSkewMilliseconds: null, isSealed },
            acknowledgement: {
              ...rest,
              generation: generation ?? undefined,
              version: generation === null ? undefined : '1.0.0',
            },
          })),
          ...gone.map((instanceId) => ({
            ...{ instanceId, clockSkewMilliseconds: null, acknowledgement: null, isSealed: false },
            silentMilliseconds: this.silence,
          })),
        ],
      };
    });
  }

  /** A test calls this to report an acknowledgement. It resolves the promise of `nextAcknowledgement`. */
  acknowledged: () => void = () => undefined;

  nextAcknowledgement(): Promise<void> {
    return new Promise((resolve) => (this.acknowledged = resolve));
  }

  /** For how many milliseconds gateways without an acknowledgement have been silent. */
  silence = 0;

  grant(grants: readonly GatewayGrant[]): Promise<void> {
    return this.#do('grant', () => {
      for (const { instanceId, ...grant } of grants) this.grants.set(instanceId, grant);
    });
  }

  removeGateways(instanceIds: readonly string[]): Promise<void> {
    return this.#do('removeGateways', () => {
      for (const id of instanceIds) this.grants.delete(id);
      this.live = this.live.filter(({ instanceId }) => !instanceIds.includes(instanceId));
    });
  }

  read(names: readonly string[]): Promise<StoreEntry[]> {
    return Promise.resolve(names.map((name) => ({ name, value: this.records.get(name) ?? null })));
  }

  async *names(prefix: string): AsyncGenerator<string> {
    await this.#do('names', () => undefined);
    for (const name of [...this.records.keys()]) if (name.startsWith(prefix)) yield name;
  }

  /** Number of `gateways` calls. */
  get timesAsked(): number {
    return this.calls.filter((call) => call === 'gateways').length;
  }

  /** The whole contents as one text. */
  text(): string {
    return JSON.stringify([...this.records, this.meta, this.revision, this.live]);
  }

  #publish({ revision, change }: Position): void {
    [this.revision, this.change] = [revision, change];
    this.live = this.live.map((gateway) => (gateway.acknowledges ? { ...gateway, revision } : gateway));
  }

  async #do<Result>(call: StoreCall, act: (isWhole: boolean) => Result): Promise<Result> {
    this.calls.push(call);
    await Promise.resolve();
    const failure = this.fails(call);
    if (failure === 'before') throw new Error(`the store is away (${call})`);
    const result = act(failure !== 'midway');
    if (failure !== null) throw new Error(`the store went away (${call})`);
    return result;
  }
}

function revisionOf(record: object | null | undefined): number {
  return (record as { revision?: number } | null | undefined)?.revision ?? 0;
}

/** Creates a simulated gateway for the store. */
export function gateway(instanceId: string, changes: Partial<TestGateway> = {}): TestGateway {
  return {
    ...{ instanceId, revision: 0, environment: 'live', host: `${instanceId}.internal`, acknowledges: true },
    ...{ startedAt: '2026-01-15T11:00:00.000Z', beat: 1, lifetimeMilliseconds: 31_000 },
    ...{ silentMilliseconds: 0, leaving: false },
    ...changes,
  };
}
