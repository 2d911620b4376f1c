import type { MetaRecord } from '../../../gateway/records.js';
import type {
  GatewayGrant,
  InactiveReport,
  Position,
  RecordsStore,
  SeenGateways,
  StoreEntry,
  StoreLook,
  StoreMemory,
} from '../../../registry/ports.js';
import type { RedisAddress } from '../connection.js';
import { AskInbox } from '../ask-inbox.js';
import { damagedText } from '../damaged-text.js';
import { GatewayDirectory } from '../gateway-directory.js';
import { InactiveReports } from '../inactive-reports.js';
import { Outage } from '../outage.js';
import type { OutageEvents } from '../outage.js';
import { RecordNames } from '../record-names.js';
import { highestThatStayed, recordWrite } from '../record-write.js';
import { changeIn, changeText, revisionIn, unlessFurther } from '../revision.js';
import { scanNames } from '../scan-names.js';
import { entriesOf, namesServers, storedMeta } from '../store-state.js';
import { asText, callEach, callOne, readEach } from './cluster-calls.js';
import { ClusterMasters } from './cluster-masters.js';
import { MasterServers } from './master-servers.js';
import { everySlot, slotsOf, SlotProofs } from './slot-proofs.js';

/**
 * The gateways' store on the masters of a Cluster, as the registry writes it: records, then the markers of their slots,
 * then the index of changes, then, published, the revision. So whoever reads a revision finds in the index what was
 * changed, and in the markers whether that is there still.
 */
export class ClusterRecordsStore implements RecordsStore {
  readonly endsWithProcess = false;
  readonly inbox: AskInbox;
  readonly canFailOver = true;
  readonly #masters: ClusterMasters;
  readonly #proofs: SlotProofs;
  readonly #prefix: string;
  readonly #names: RecordNames;
  readonly #directory: GatewayDirectory;
  readonly #reports: InactiveReports;
  readonly #outage: Outage;
  /** What the masters were when everything began to be written anew. */
  #base = -1;
  readonly #servers: MasterServers;

  constructor(address: RedisAddress, prefix: string, events: OutageEvents) {
    this.#prefix = prefix;
    this.#names = new RecordNames(prefix);
    this.#outage = new Outage(events);
    const [gateways, reports, asks] = [this.#names.gateway(''), this.#names.inactivePrefix, this.#names.askPrefix];
    const missed = (): void => {
      this.#directory.missed();
      this.#reports.missed();
    };
    const masters = new ClusterMasters({
      address,
      prefixes: [gateways, reports, asks],
      onError: this.#outage.failed,
      events: {
        onChanged: (names) => {
          this.#directory.heard(names);
          this.#reports.noticed(names);
          this.inbox.heard(names);
        },
        onEverythingChanged: () => {
          missed();
          this.inbox.onWork();
        },
        onListening: missed,
        onDeaf: missed,
        onReady: () => undefined,
      },
    });
    this.#reports = new InactiveReports(
      reports,
      (prefix) => this.#scan(prefix),
      (name) => this.#get(name),
    );
    this.#directory = new GatewayDirectory({
      prefix: gateways,
      // An acknowledgement may be at a master that is not known yet, so nothing is said before all agree who they are.
      hearing: true,
      get epoch() {
        return masters.epoch;
      },
      catchUp: () => this.#agree(),
      names: () => this.#scan(gateways),
      read: (names) => this.#read(names),
    });
    this.#masters = masters;
    this.inbox = new AskInbox(asks, (calls) => callEach(masters, calls));
    this.#servers = new MasterServers(masters);
    this.#proofs = new SlotProofs(masters, this.#names);
    masters.agree().catch(() => undefined);
  }

  async look(): Promise<StoreLook> {
    await this.#agree();
    const epoch = this.#masters.epoch;
    const servers = await this.#servers.runIds();
    const meta = await this.#get(this.#names.meta);
    await this.#proofs.check(meta ?? '', storedMeta(meta)?.generation ?? '');
    const [revisionText, named] = await Promise.all([
      this.#get(this.#names.revision),
      this.#get(this.#names.changeInCluster),
    ]);
    const revision = revisionIn(revisionText) ?? 0;
    return {
      ...{ epoch, servers, replicas: 0, isWhole: this.#proofs.missing === 0 },
      ...{ meta: storedMeta(meta), revision, change: changeIn(named, revision) },
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
      throw new Error('the masters of the Cluster are not those that the records were written to; it is begun anew');
    }
    await this.#proofs.seal({ generation: meta.generation, revision: position.revision });
    const name = this.#names.changedSlots;
    // Both or none: without the index nobody could tell what a slot lacks.
    const index = "redis.call('DEL', KEYS[1]) redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])";
    await callOne(this.#masters, { name, command: ['EVAL', index, '1', name, String(position.revision), everySlot] });
    await this.publish(position);
    await callOne(this.#masters, { name: this.#names.meta, command: ['SET', this.#names.meta, JSON.stringify(meta)] });
  }

  async write(entries: readonly StoreEntry[], change: number): Promise<number> {
    const stayed = await this.rewrite(entries, change);
    if (entries.length === 0) return stayed;
    const slots = slotsOf(entries.map(({ name }) => this.#prefix + name));
    await this.#proofs.advance(slots, change);
    const scores = slots.flatMap((slot) => [String(change), String(slot)]);
    const name = this.#names.changedSlots;
    await callOne(this.#masters, { name, command: ['ZADD', name, 'GT', ...scores] });
    return stayed;
  }

  async rewrite(entries: readonly StoreEntry[], revision: number): Promise<number> {
    if (!this.#masters.hearing) await this.#agree();
    const calls = entries.map(({ name: short, value }) => {
      const name = this.#prefix + short;
      return { name, command: recordWrite(name, value, revision) };
    });
    return highestThatStayed(await callEach(this.#masters, calls));
  }

  async publish({ revision, change }: Position): Promise<void> {
    const name = this.#names.revision;
    const texts = [String(revision), changeText({ revision, change })];
    const command = ['EVAL', unlessFurther, '2', name, this.#names.changeInCluster, ...texts];
    if ((await callOne(this.#masters, { name, command })) === 1) return;
    throw new Error('another registry has published a later revision; the store is looked at anew');
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
    const calls = grants.map(({ instanceId, ...grant }) => {
      const name = this.#names.grant(instanceId);
      return { name, command: ['SET', name, JSON.stringify(grant)] };
    });
    await callEach(this.#masters, calls);
  }

  async removeGateways(instanceIds: readonly string[]): Promise<void> {
    for (const nameOf of [this.#names.grant.bind(this.#names), this.#names.gateway.bind(this.#names)]) {
      await this.#remove(instanceIds.map(nameOf));
    }
  }

  async read(names: readonly string[]): Promise<StoreEntry[]> {
    return entriesOf(
      names,
      await readEach(
        this.#masters,
        names.map((name) => this.#prefix + name),
      ),
    );
  }

  async *names(prefix: string): AsyncGenerator<string> {
    for await (const name of this.#scan(this.#prefix + prefix)) yield name.slice(this.#prefix.length);
  }

  close(): Promise<void> {
    this.#masters.close();
    return Promise.resolve();
  }

  /** The masters are who they are thought to be, and whatever they told of, a flush perhaps, has been heard. */
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

  async #read(names: readonly string[]): Promise<{ generation: string | null; texts: (string | null)[] }> {
    const [meta, servers] = await Promise.all([this.#get(this.#names.meta), this.#servers.runIds()]);
    const texts = await readEach(this.#masters, names);
    return { generation: namesServers(storedMeta(meta), servers), texts };
  }

  async #get(name: string): Promise<string | null> {
    return asText(await callOne(this.#masters, { name, command: ['GET', name] }).catch(damagedText));
  }
}
