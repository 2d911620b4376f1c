import type { Redis } from 'ioredis';
import type { FillingRecord, MetaRecord } from '../../../gateway/records.js';
import type {
  GatewayGrant,
  InactiveReport,
  Position,
  RecordsStore,
  SeenGateways,
  StoreEntry,
  StoreSnapshot,
  StoreMemory,
} from '../../../gateway/store-ports.js';
import { bytesToText, callAll, deleteAll, readBytes, readTogether, writeTexts } from '../calls.js';
import { connectRedis, type RedisAddress } from '../connection.js';
import { Outage, type OutageEvents } from '../outage.js';
import { RecordNames, scanNames } from '../record-names.js';
import { changeIn, changeText, malformedText, revisionIn } from '../record-text.js';
import { noSeals, type Seals } from '../seal.js';
import { InvalidationListener } from '../server/invalidation-listener.js';
import { ReplicaCount, SameServer } from '../server/same-server.js';
import { SentinelMajority } from '../server/sentinel-majority.js';
import { memoryOf } from '../server/server-memory.js';
import { entriesOf, readGeneration, storedMeta, storedSeal } from '../store-state.js';
import { QueryInbox } from './ask-inbox.js';
import { type DirectoryTexts, GatewayDirectory } from './gateway-directory.js';
import { InactiveReports } from './inactive-reports.js';
import { RecordWatch, type Replacement } from './record-watch.js';
import { entryText, recordWrite, writeRecords } from './record-write.js';
import { WriterMark } from './writer-mark.js';

const entriesAtATime = 500;

/** The registry's access to the record store on one server, or on the master that the sentinels name. */
export class RedisRecordsStore implements RecordsStore {
  readonly endsWithProcess = false;
  readonly #redis: Redis;
  readonly #listening: Redis;
  readonly #same: SameServer;
  readonly #listener: InvalidationListener;
  readonly #sentinels: SentinelMajority | null;
  readonly #prefix: string;
  readonly #seals: Seals;
  readonly #names: RecordNames;
  readonly #directory: GatewayDirectory;
  readonly #reports: InactiveReports;
  readonly #mark: WriterMark;
  readonly watched: RecordWatch;
  readonly inbox: QueryInbox;
  #flushes = 0;
  readonly #replicas: ReplicaCount;

  constructor(address: RedisAddress, prefix: string, events: OutageEvents, seals = noSeals) {
    [this.#prefix, this.#seals, this.#names] = [prefix, seals, new RecordNames(prefix)];
    const outage = new Outage(events);
    const [redis, listening] = [connectRedis(address, outage.failed), connectRedis(address, outage.failed)];
    [this.#redis, this.#listening] = [redis, listening];
    this.#same = new SameServer(redis, listening, outage.recovered);
    const [gateways, reports, asks] = [this.#names.gateway(''), this.#names.inactivePrefix, this.#names.askPrefix];
    this.inbox = new QueryInbox(asks, seals, {
      read: readBytes.bind(null, redis),
      write: writeTexts.bind(null, redis),
    });
    const missed = (): void => {
      this.#directory.missed();
      this.#reports.missed();
      this.watched.missed();
    };
    redis.on('close', missed); // the next connection may lead to another server
    const scan = (prefix: string): AsyncIterable<string> => scanNames(redis, prefix);
    this.#reports = new InactiveReports(reports, scan, (name) => redis.get(name).catch(malformedText), seals);
    this.#listener = new InvalidationListener(listening, [gateways, reports, asks, ...this.#names.recordPrefixes], {
      onChanged: (names) => {
        this.#directory.received(names);
        this.#reports.noticed(names);
        this.watched.noticed(names);
        this.inbox.received(names);
      },
      onEverythingChanged: () => {
        this.#flushes += 1;
        missed();
      },
      onListening: missed,
      onDisconnected: missed,
    });
    const [isConnected, epoch] = [() => this.#listener.connected && this.#same.holds, () => this.#epoch];
    this.#directory = new GatewayDirectory({
      ...{ prefix: gateways, seals },
      get connected() {
        return isConnected();
      },
      get epoch() {
        return epoch();
      },
      catchUp: () => this.#listener.catchUp(),
      names: () => scan(gateways),
      read: (names) => this.#readAcknowledgements(names),
    });
    this.#sentinels = address.sentinels === null ? null : new SentinelMajority(address);
    // Without Sentinel, a managed Redis can hide its replicas behind one host name, so only the operator knows their
    // number.
    this.#replicas = new ReplicaCount(redis, address.sentinels === null ? (address.replicas ?? 0) : 0);
    this.#mark = new WriterMark(redis, this.#names.writer);
    const source = {
      ...{ prefix, epoch, textOf: entryText.bind(null, seals, prefix), catchUp: () => this.#listener.catchUp() },
      read: (names: readonly string[]) => readBytes(redis, names),
      replace: (records: readonly Replacement[]) => this.#mark.replace(records),
    };
    this.watched = new RecordWatch(source, this.#names.recordPrefixes);
  }

  get sealIds(): readonly string[] {
    return this.#seals.ids;
  }

  get canFailOver(): boolean {
    return this.#sentinels !== null || this.#replicas.most > 0;
  }

  /**
   * Reads a snapshot. `isWhole` is always true, because a single server can lose data only as a whole: when it is
   * emptied or rolled back. Such a loss changes other values of the snapshot: the run id of the server, the meta record
   * (description of the store) or the revision (number of the newest change).
   */
  async snapshot(): Promise<StoreSnapshot> {
    const { meta, revision, change } = this.#names;
    const epoch = this.#epoch;
    const [[metaText, revisionText, named]] = await Promise.all([
      readTogether(this.#redis, [meta, revision, change]),
      this.#sentinels?.require(this.#redis, this.#listening),
    ]);
    await this.#replicas.count();
    const newest = revisionIn(revisionText ?? null) ?? 0;
    return {
      ...{ epoch, servers: this.#servers, replicas: this.#replicas.most, isWhole: true },
      ...{ meta: storedMeta(metaText ?? null), seal: storedSeal(this.#seals, meta, metaText ?? null) },
      revision: newest,
      change: changeIn(named ?? null, newest),
    };
  }

  memory(): Promise<StoreMemory> {
    return memoryOf([this.#redis]);
  }

  begin(): Promise<void> {
    return this.#mark.begin();
  }

  async write(entries: readonly StoreEntry[], change: number, generation: string): Promise<number> {
    let highest = 0;
    for (let start = 0; start < entries.length; start += entriesAtATime) {
      const some = entries.slice(start, start + entriesAtATime);
      const writes = some.map((entry) => recordWrite(this.#seals, this.#prefix, entry, { change, generation }));
      this.watched.writing(writes);
      const stayed = await writeRecords(this.#seals, writes, async (commands) => {
        const replies = await callAll(this.#redis, [...commands, { command: this.#mark.change() }]);
        this.#mark.changed(replies.pop());
        return replies;
      });
      highest = Math.max(highest, stayed);
    }
    return highest;
  }

  rewrite(entries: readonly StoreEntry[], revision: number, generation: string): Promise<number> {
    return this.write(entries, revision, generation);
  }

  publish(position: Position): Promise<void> {
    return this.#mark.set(this.#textsOf(position));
  }

  complete(meta: MetaRecord, position: Position): Promise<void> {
    return this.#mark.set([...this.#textsOf(position), this.#sealed(this.#names.meta, meta)]);
  }

  fill(meta: FillingRecord): Promise<void> {
    return this.#mark.set([this.#sealed(this.#names.meta, meta)]);
  }

  async gateways(roster: readonly string[]): Promise<SeenGateways> {
    return { epoch: this.#epoch, ...(await this.#directory.list(roster)), hasReports: this.#reports.isPending };
  }

  reports(): AsyncIterable<InactiveReport> {
    return this.#reports.all();
  }

  removeReports(names: readonly string[]): Promise<void> {
    return deleteAll(this.#redis, names);
  }

  nextAcknowledgement(): Promise<void> {
    return this.#directory.next();
  }

  async grant(grants: readonly GatewayGrant[]): Promise<void> {
    const calls = grants.map(({ instanceId, ...grant }) => this.#sealed(this.#names.grant(instanceId), grant));
    await callAll(
      this.#redis,
      calls.map((call) => ({ command: ['SET', ...call] })),
    );
  }

  removeGateways(instanceIds: readonly string[]): Promise<void> {
    return deleteAll(
      this.#redis,
      instanceIds.flatMap((id) => [this.#names.grant(id), this.#names.gateway(id)]),
    );
  }

  async read(names: readonly string[]): Promise<StoreEntry[]> {
    const stored = await readBytes(
      this.#redis,
      names.map((name) => this.#prefix + name),
    );
    return entriesOf(names, stored.map(bytesToText));
  }

  async *names(prefix: string): AsyncGenerator<string> {
    for await (const name of scanNames(this.#redis, this.#prefix + prefix)) yield name.slice(this.#prefix.length);
  }

  close(): Promise<void> {
    this.#sentinels?.close();
    this.#redis.disconnect();
    this.#listening.disconnect();
    return Promise.resolve();
  }

  get #epoch(): number {
    return this.#same.epoch + this.#listener.epoch + this.#flushes;
  }

  get #servers(): string[] {
    const { facts } = this.#same;
    if (facts === null) throw new Error('the connections to Redis reach different servers; retrying');
    return facts.runId === null ? [] : [facts.runId];
  }

  #textsOf({ revision, change }: Position): [name: string, text: string][] {
    return [
      [this.#names.change, changeText({ revision, change })],
      [this.#names.revision, String(revision)],
    ];
  }

  #sealed(name: string, value: object): [name: string, text: string] {
    return [name, this.#seals.seal(name, JSON.stringify(value))];
  }

  async #readAcknowledgements(names: readonly string[]): Promise<DirectoryTexts> {
    const [meta = null, ...texts] = await readTogether(this.#redis, [this.#names.meta, ...names]);
    return { ...readGeneration(this.#seals, this.#names.meta, meta, this.#servers), texts };
  }
}
