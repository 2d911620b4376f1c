import type { LiveGateway, MetaRecord, RecordsStore, StoredMeta, StoreEntry } from '../../src/registry/ports.js';

/** What the registry asks of a store. */
export type StoreCall = 'readMeta' | 'readRevision' | 'writeMeta' | 'write' | 'publishRevision' | 'gateways' | 'names';

/** A gateway of the test, and whether it acknowledges what is published. */
export interface TestGateway extends LiveGateway {
  readonly acknowledges: boolean;
}

/** A store in memory that can fail at any point, and whose gateways acknowledge at once. */
export class MemoryRecordsStore implements RecordsStore {
  readonly records = new Map<string, object>();
  readonly calls: StoreCall[] = [];
  meta: StoredMeta | null = null;
  revision = 0;
  live: TestGateway[] = [];
  /** Says whether a call fails: before it has any effect, half-way, or after all of it. */
  fails: (call: StoreCall) => 'before' | 'midway' | 'after' | null = () => null;
  /** Looks at each write before it happens. */
  onWrite: (entries: readonly StoreEntry[]) => void | Promise<void> = () => undefined;

  readMeta(): Promise<StoredMeta | null> {
    return this.#do('readMeta', () => this.meta);
  }

  writeMeta(meta: MetaRecord): Promise<void> {
    return this.#do('writeMeta', () => {
      this.meta = meta;
    });
  }

  /** False where a part of it was emptied, or went back. */
  whole = true;

  /** Whether what is of a later change stays, as an adapter sees to. False shows what the registry does by itself. */
  keepsLater = true;

  begin(): Promise<boolean> {
    return Promise.resolve(this.whole);
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

  readRevision(): Promise<number> {
    return this.#do('readRevision', () => this.revision);
  }

  publishRevision(revision: number): Promise<void> {
    return this.#do('publishRevision', () => {
      this.revision = revision;
      this.live = this.live.map((gateway) => (gateway.acknowledges ? { ...gateway, revision } : gateway));
    });
  }

  gateways(): Promise<LiveGateway[]> {
    return this.#do('gateways', () =>
      this.live.map(({ instanceId, revision, environment, host, startedAt, isSilent = false }) => ({
        ...{ instanceId, revision, environment, host, startedAt, isSilent },
      })),
    );
  }

  async *names(prefix: string): AsyncGenerator<string> {
    await this.#do('names', () => undefined);
    for (const name of [...this.records.keys()]) if (name.startsWith(prefix)) yield name;
  }

  /** How often it was asked for the gateways. */
  get timesAsked(): number {
    return this.calls.filter((call) => call === 'gateways').length;
  }

  /** Everything that is in it, as one text. */
  text(): string {
    return JSON.stringify([...this.records, this.meta, this.revision, this.live]);
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

/** A gateway for a store. */
export function gateway(instanceId: string, changes: Partial<TestGateway> = {}): TestGateway {
  return {
    ...{ instanceId, revision: 0, environment: 'live', host: `${instanceId}.internal`, acknowledges: true },
    startedAt: '2026-01-15T11:00:00.000Z',
    ...changes,
  };
}
