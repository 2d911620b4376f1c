import type { MetaRecord } from '../../../gateway/records.js';
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
import { bytesToText as textOf } from '../calls.js';
import type { RedisAddress } from '../connection.js';
import { Outage, type OutageEvents } from '../outage.js';
import { RecordNames, scanNames } from '../record-names.js';
import { changeIn, malformedText, revisionIn } from '../record-text.js';
import { QueryInbox } from './ask-inbox.js';
import { type DirectoryTexts, GatewayDirectory } from './gateway-directory.js';
import { InactiveReports } from './inactive-reports.js';
import { RecordWatch, type Replacement } from './record-watch.js';
import { entryText, recordWrite, writeRecords } from './record-write.js';
import { noSeals, type Seals } from '../seal.js';
import { entriesOf, readGeneration, storedMeta, storedSeal } from '../store-state.js';
import { stringReply, callEach, callOne, writeEach } from '../cluster/cluster-calls.js';
import { ClusterMasters } from '../cluster/cluster-masters.js';
import { publishUnlessLater, readEach, replaceEach, StatedGeneration } from './cluster-publish.js';
import { SlotProofs, slotsOf } from '../cluster/slot-proofs.js';
import { factsOf } from '../server/same-server.js';
import { memoryOf } from '../server/server-memory.js';

/**
 * The registry's access to the record store on the masters of a Cluster. It first writes records, then the markers of
 * their slots, then the change index, and finally the revision. A marker states up to which revision its slot is
 * complete. A gateway that reads a revision finds in the index which slots have changed, and in the markers whether
 * those slots are complete.
 */
export class ClusterRecordsStore implements RecordsStore {
  readonly endsWithProcess = false;
  readonly canFailOver = true;
  readonly #masters: ClusterMasters;
  readonly #proofs: SlotProofs;
  readonly #stated = new StatedGeneration();
  readonly #prefix: string;
  readonly #seals: Seals;
  readonly #names: RecordNames;
  readonly #directory: GatewayDirectory;
  readonly #reports: InactiveReports;
  readonly watched: RecordWatch;
  readonly inbox: QueryInbox;
  readonly #outage: Outage;
  /**
   * The epoch of the masters when the rewrite of all records began. The epoch changes with each reconnect. `complete`
   * rejects if the epoch has changed since then.
   */
  #base = -1;
  readonly #servers: MasterServers;

  constructor(address: RedisAddress, prefix: string, events: OutageEvents, seals = noSeals) {
    [this.#prefix, this.#seals, this.#names] = [prefix, seals, new RecordNames(prefix)];
    this.#outage = new Outage(events);
    const [gateways, reports, asks] = [this.#names.gateway(''), this.#names.inactivePrefix, this.#names.askPrefix];
    const missed = (): void => {
      this.#directory.missed();
      this.#reports.missed();
      this.watched.missed();
    };
    const masters = new ClusterMasters({
      address,
      prefixes: [gateways, reports, asks, ...this.#names.recordPrefixes],
      onError: this.#outage.failed,
      events: {
        onChanged: (names) => {
          this.#directory.received(names);
          this.#reports.noticed(names);
          this.watched.noticed(names);
          this.inbox.received(names);
        },
        onEverythingChanged: missed,
        onListening: missed,
        onDisconnected: missed,
        onReady: () => undefined,
      },
    });
    this.#reports = new InactiveReports(
      reports,
      (prefix) => this.#scan(prefix),
      (name) => this.#get(name),
      seals,
    );
    this.#directory = new GatewayDirectory({
      ...{ prefix: gateways, seals },
      // Always true, so that `list` calls `catchUp`, which waits until all masters agree on the slot map. Before that,
      // an acknowledgement of a gateway could be on a master that is not known yet.
      connected: true,
      get epoch() {
        return masters.epoch;
      },
      catchUp: () => this.#agree(),
      names: () => this.#scan(gateways),
      read: (names) => this.#read(names),
    });
    const source = {
      ...{ prefix, epoch: () => masters.epoch, catchUp: () => masters.catchUp() },
      textOf: entryText.bind(null, seals, prefix),
      read: (names: readonly string[]) => readEach(masters, names),
      replace: (records: readonly Replacement[]) => replaceEach(masters, records),
    };
    this.watched = new RecordWatch(source, this.#names.recordPrefixes);
    this.#masters = masters;
    const ends = { read: readEach.bind(null, masters), write: writeEach.bind(null, masters) };
    this.inbox = new QueryInbox(asks, seals, ends);
    this.#servers = new MasterServers(masters);
    this.#proofs = new SlotProofs(masters, this.#names);
    masters.agree().catch(() => undefined);
  }

  get sealIds(): readonly string[] {
    return this.#seals.ids;
  }

  async snapshot(): Promise<StoreSnapshot> {
    await this.#agree();
    const epoch = this.#masters.epoch;
    const servers = await this.#servers.runIds();
    const meta = await this.#get(this.#names.meta);
    const stated = { meta: storedMeta(meta), seal: storedSeal(this.#seals, this.#names.meta, meta) };
    await this.#proofs.check(meta ?? '', this.#stated.of(stated));
    const { revision: newest, changeInCluster } = this.#names;
    const [revisionText, named] = await Promise.all([this.#get(newest), this.#get(changeInCluster)]);
    const revision = revisionIn(revisionText) ?? 0;
    return {
      ...{ epoch, servers, replicas: 0, isWhole: this.#proofs.missing === 0 },
      ...{ ...stated, revision, change: changeIn(named, revision) },
    };
  }

  memory(): Promise<StoreMemory> {
    return this.#servers.memory();
  }

  begin(): Promise<void> {
    this.#base = this.#masters.epoch;
    return Promise.resolve();
  }

  async complete(meta: MetaRecord, position: Position): Promise<void> {
    await this.#agree();
    if (this.#masters.epoch !== this.#base) {
      throw new Error('the masters of the Cluster changed while records were written; retrying');
    }
    await this.#proofs.seal({ generation: meta.generation, revision: position.revision });
    await this.publish(position);
    await callOne(this.#masters, this.#setSealed(this.#names.meta, meta));
  }

  async write(entries: readonly StoreEntry[], change: number, generation: string): Promise<number> {
    const stayed = await this.rewrite(entries, change, generation);
    if (entries.length === 0) return stayed;
    const slots = slotsOf(entries.map(({ name }) => this.#prefix + name));
    await this.#proofs.advance(slots, change);
    const scores = slots.flatMap((slot) => [String(change), String(slot)]);
    const name = this.#names.changedSlots;
    await callOne(this.#masters, { name, command: ['ZADD', name, 'GT', ...scores] });
    return stayed;
  }

  async rewrite(entries: readonly StoreEntry[], revision: number, generation: string): Promise<number> {
    if (!this.#masters.connected) await this.#agree();
    const of = { change: revision, generation };
    const writes = entries.map((entry) => recordWrite(this.#seals, this.#prefix, entry, of));
    this.watched.writing(writes);
    return writeRecords(this.#seals, writes, (commands) => callEach(this.#masters, commands));
  }

  publish(position: Position): Promise<void> {
    return publishUnlessLater(this.#masters, this.#names, position);
  }

  async gateways(roster: readonly string[]): Promise<SeenGateways> {
    const { epoch } = this.#masters;
    return { epoch, ...(await this.#directory.list(roster)), hasReports: this.#reports.isPending };
  }

  reports(): AsyncIterable<InactiveReport> {
    return this.#reports.all();
  }

  removeReports(names: readonly string[]): Promise<void> {
    return this.#remove(names);
  }

  nextAcknowledgement(): Promise<void> {
    return this.#directory.next();
  }

  async grant(grants: readonly GatewayGrant[]): Promise<void> {
    const calls = grants.map(({ instanceId, ...grant }) => this.#setSealed(this.#names.grant(instanceId), grant));
    await callEach(this.#masters, calls);
  }

  async removeGateways(instanceIds: readonly string[]): Promise<void> {
    for (const nameOf of [this.#names.grant.bind(this.#names), this.#names.gateway.bind(this.#names)]) {
      await this.#remove(instanceIds.map(nameOf));
    }
  }

  async read(names: readonly string[]): Promise<StoreEntry[]> {
    const fullNames = names.map((name) => this.#prefix + name);
    return entriesOf(names, (await readEach(this.#masters, fullNames)).map(textOf));
  }

  async *names(prefix: string): AsyncGenerator<string> {
    for await (const name of this.#scan(this.#prefix + prefix)) yield name.slice(this.#prefix.length);
  }

  close(): Promise<void> {
    this.#masters.close();
    return Promise.resolve();
  }

  /**
   * Resolves once the masters agree on the slot map and all their earlier invalidation messages, such as one for a
   * flush, have been handled.
   */
  async #agree(): Promise<void> {
    await this.#masters.agree();
    await this.#masters.catchUp();
    this.#outage.recovered();
  }

  async #remove(names: readonly string[]): Promise<void> {
    const calls = names.map((name) => ({ name, command: ['DEL', name] }));
    await callEach(this.#masters, calls);
  }

  async *#scan(prefix: string): AsyncGenerator<string> {
    for (const { commands } of this.#masters.all) yield* scanNames(commands, prefix);
  }

  #setSealed(name: string, value: object): { name: string; command: string[] } {
    return { name, command: ['SET', name, this.#seals.seal(name, JSON.stringify(value))] };
  }

  async #read(names: readonly string[]): Promise<DirectoryTexts> {
    const [meta, servers] = await Promise.all([this.#get(this.#names.meta), this.#servers.runIds()]);
    const calls = names.map((name) => ({ name, command: ['GET', name] }));
    const texts = (await callEach(this.#masters, calls)).map(stringReply);
    return { ...readGeneration(this.#seals, this.#names.meta, meta, servers), texts };
  }

  async #get(name: string): Promise<string | null> {
    return stringReply(await callOne(this.#masters, { name, command: ['GET', name] }).catch(malformedText));
  }
}

/** Reads run ids and memory usage from the INFO of each Cluster master. */
export class MasterServers {
  readonly #masters: ClusterMasters;
  #known: { readonly epoch: number; readonly runIds: readonly string[] } = { epoch: -1, runIds: [] };

  constructor(masters: ClusterMasters) {
    this.#masters = masters;
  }

  /**
   * Returns the sorted run ids of all masters; empty if a master does not report its run id, or a connection changed
   * meanwhile. A complete list is reused until the next reconnect.
   */
  async runIds(): Promise<readonly string[]> {
    const { all, epoch } = this.#masters;
    if (this.#known.epoch === epoch) return this.#known.runIds;
    const facts = await Promise.all(all.map(({ commands }) => factsOf(commands)));
    const runIds = facts.map(({ runId }) => runId).filter((runId) => runId !== null);
    const isComplete = runIds.length === all.length && this.#masters.epoch === epoch;
    if (isComplete) this.#known = { epoch, runIds: runIds.toSorted() };
    return isComplete ? this.#known.runIds : [];
  }

  async memory(): Promise<StoreMemory> {
    if (!this.#masters.connected) await this.#masters.agree();
    return memoryOf(this.#masters.all.map(({ commands }) => commands));
  }
}
