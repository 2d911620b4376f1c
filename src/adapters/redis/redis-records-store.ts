import type { Redis } from 'ioredis';
import type { FillingRecord, MetaRecord } from '../../gateway/records.js';
import type {
  GatewayGrant,
  InactiveReport,
  Position,
  RecordsStore,
  SeenGateways,
  StoreEntry,
  StoreLook,
  StoreMemory,
} from '../../registry/ports.js';
import { AskInbox } from './ask-inbox.js';
import { connectRedis } from './connection.js';
import type { RedisAddress } from './connection.js';
import { damagedText } from './damaged-text.js';
import { GatewayDirectory } from './gateway-directory.js';
import { InactiveReports } from './inactive-reports.js';
import { InvalidationListener } from './invalidation-listener.js';
import { Outage } from './outage.js';
import type { OutageEvents } from './outage.js';
import { callAll, textsOf } from './pipelined.js';
import { RecordNames } from './record-names.js';
import { highestThatStayed, recordWrite } from './record-write.js';
import { changeIn, changeText, revisionIn } from './revision.js';
import { ReplicaCount, SameServer } from './same-server.js';
import { scanNames } from './scan-names.js';
import { SentinelMajority } from './sentinel-majority.js';
import { memoryOf } from './server-memory.js';
import { entriesOf, namesServers, storedMeta } from './store-state.js';
import { WriterMark } from './writer-mark.js';

const entriesAtATime = 500;

/** The gateways' store on one server, or on that which the sentinels name, as the registry writes it. */
export class RedisRecordsStore implements RecordsStore {
  readonly endsWithProcess = false;
  readonly inbox: AskInbox;
  readonly #redis: Redis;
  readonly #listening: Redis;
  readonly #same: SameServer;
  readonly #listener: InvalidationListener;
  readonly #sentinels: SentinelMajority | null;
  readonly #prefix: string;
  readonly #names: RecordNames;
  readonly #directory: GatewayDirectory;
  readonly #reports: InactiveReports;
  readonly #mark: WriterMark;
  #flushes = 0;
  readonly #replicas: ReplicaCount;

  constructor(address: RedisAddress, prefix: string, events: OutageEvents) {
    [this.#prefix, this.#names] = [prefix, new RecordNames(prefix)];
    const outage = new Outage(events);
    const [redis, listening] = [connectRedis(address, outage.failed), connectRedis(address, outage.failed)];
    [this.#redis, this.#listening] = [redis, listening];
    this.#same = new SameServer(redis, listening, outage.recovered);
    redis.on('close', () => {
      missed(); // the next one may lead to another server
    });
    const [gateways, reports, asks] = [this.#names.gateway(''), this.#names.inactivePrefix, this.#names.askPrefix];
    const missed = (): void => {
      this.#directory.missed();
      this.#reports.missed();
    };
    const scan = (prefix: string): AsyncIterable<string> => scanNames(redis, prefix);
    this.#reports = new InactiveReports(reports, scan, (name) => redis.get(name).catch(damagedText));
    this.inbox = new AskInbox(asks, (calls) =>
      callAll(
        redis,
        calls.map(({ command }) => command),
      ),
    );
    this.#listener = new InvalidationListener(listening, [gateways, reports, asks], {
      onChanged: (names) => {
        this.#directory.heard(names);
        this.#reports.noticed(names);
        this.inbox.heard(names);
      },
      onEverythingChanged: () => {
        this.#flushes += 1;
        missed();
        this.inbox.onWork();
      },
      onListening: missed,
      onDeaf: missed,
    });
    const [isHearing, epoch] = [() => this.#listener.hearing && this.#same.holds, () => this.#epoch];
    this.#directory = new GatewayDirectory({
      prefix: gateways,
      get hearing() {
        return isHearing();
      },
      get epoch() {
        return epoch();
      },
      catchUp: () => this.#listener.catchUp(),
      names: () => scan(gateways),
      read: (names) => this.#readAcknowledgements(names),
    });
    this.#sentinels = address.sentinels === null ? null : new SentinelMajority(address);
    // One name in front of a pair that fails over by itself may hide its replicas: only the operator knows of them then.
    this.#replicas = new ReplicaCount(redis, address.sentinels === null ? (address.replicas ?? 0) : 0);
    this.#mark = new WriterMark(redis, this.#names.writer);
  }

  get canFailOver(): boolean {
    return this.#sentinels !== null || this.#replicas.most > 0;
  }

  /** A server is emptied, or goes back, as a whole: its run id, the meta record and the revision tell. */
  async look(): Promise<StoreLook> {
    const { meta, revision, change } = this.#names;
    const epoch = this.#epoch;
    const [[metaText, revisionText, named]] = await Promise.all([
      textsOf(this.#redis.multi(), [meta, revision, change]),
      this.#sentinels?.require(this.#redis, this.#listening),
    ]);
    await this.#replicas.count();
    const newest = revisionIn(revisionText ?? null) ?? 0;
    return {
      ...{ epoch, servers: this.#servers, replicas: this.#replicas.most, isWhole: true },
      meta: storedMeta(metaText ?? null),
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

  async write(entries: readonly StoreEntry[], change: number): Promise<number> {
    let highest = 0;
    for (let start = 0; start < entries.length; start += entriesAtATime) {
      const writes = entries
        .slice(start, start + entriesAtATime)
        .map(({ name, value }) => recordWrite(this.#prefix + name, value, change));
      const answers = await callAll(this.#redis, [...writes, this.#mark.change()]);
      this.#mark.changed(answers.pop());
      highest = Math.max(highest, highestThatStayed(answers));
    }
    return highest;
  }

  rewrite(entries: readonly StoreEntry[], revision: number): Promise<number> {
    return this.write(entries, revision);
  }

  publish(position: Position): Promise<void> {
    return this.#mark.set(this.#textsOf(position));
  }

  complete(meta: MetaRecord, position: Position): Promise<void> {
    return this.#mark.set([...this.#textsOf(position), [this.#names.meta, JSON.stringify(meta)]]);
  }

  fill(meta: FillingRecord): Promise<void> {
    return this.#mark.set([[this.#names.meta, JSON.stringify(meta)]]);
  }

  async gateways(roster: readonly string[]): Promise<SeenGateways> {
    const epoch = this.#epoch;
    return { epoch, ...(await this.#directory.list(roster)), hasReports: this.#reports.isPending };
  }

  reports(): AsyncIterable<InactiveReport> {
    return this.#reports.all();
  }

  removeReports(names: readonly string[]): Promise<void> {
    return this.#delete(names);
  }

  nextAcknowledgement(): Promise<void> {
    return this.#directory.next();
  }

  async grant(grants: readonly GatewayGrant[]): Promise<void> {
    const calls = grants.map(({ instanceId, ...grant }) => [
      'SET',
      this.#names.grant(instanceId),
      JSON.stringify(grant),
    ]);
    await callAll(this.#redis, calls);
  }

  removeGateways(instanceIds: readonly string[]): Promise<void> {
    return this.#delete(instanceIds.flatMap((id) => [this.#names.grant(id), this.#names.gateway(id)]));
  }

  async read(names: readonly string[]): Promise<StoreEntry[]> {
    return entriesOf(
      names,
      await textsOf(
        this.#redis.pipeline(),
        names.map((name) => this.#prefix + name),
      ),
    );
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

  async #delete(names: readonly string[]): Promise<void> {
    await callAll(
      this.#redis,
      names.map((name) => ['DEL', name]),
    );
  }

  get #epoch(): number {
    return this.#same.epoch + this.#listener.epoch + this.#flushes;
  }

  get #servers(): string[] {
    const { facts } = this.#same;
    if (facts === null) throw new Error('the connections to Redis do not lead to one server yet');
    return facts.runId === null ? [] : [facts.runId];
  }

  #textsOf({ revision, change }: Position): [name: string, text: string][] {
    return [
      [this.#names.change, changeText({ revision, change })],
      [this.#names.revision, String(revision)],
    ];
  }

  async #readAcknowledgements(
    names: readonly string[],
  ): Promise<{ generation: string | null; texts: (string | null)[] }> {
    const [meta = null, ...texts] = await textsOf(this.#redis.multi(), [this.#names.meta, ...names]);
    return { generation: namesServers(storedMeta(meta), this.#servers), texts };
  }
}
