import type { LiveGateway, MetaRecord, RecordsStore, StoredMeta, StoreEntry } from '../../../registry/ports.js';
import type { RedisAddress } from '../connection.js';
import { damagedText } from '../damaged-text.js';
import { GatewayDirectory } from '../gateway-directory.js';
import { Outage } from '../outage.js';
import type { OutageEvents } from '../outage.js';
import { RecordNames } from '../record-names.js';
import { highestThatStayed, recordWrite } from '../record-write.js';
import { highestRevision, revisionIn } from '../revision.js';
import { scanNames } from '../scan-names.js';
import { storedMeta } from '../store-state.js';
import { asText, callEach, callOne } from './cluster-calls.js';
import { ClusterMasters } from './cluster-masters.js';
import { everySlot, slotsOf, SlotProofs } from './slot-proofs.js';

/**
 * A registry that was paused, and whose lease another one has, wakes with an older revision: gateways would take the store for one
 * that has lost changes. What is no revision is replaced.
 * KEYS: the revision. ARGV: the one to be published. Returns whether it was.
 */
const unlessFurther = `
  local named = tonumber(redis.pcall('GET', KEYS[1]) or '')
  local isRevision = named and named % 1 == 0 and named <= ${highestRevision}
  if isRevision and named > tonumber(ARGV[1]) then return 0 end
  redis.call('SET', KEYS[1], ARGV[1])
  return 1`;

/**
 * The gateways' store on the masters of a Cluster, as the registry writes it: records, then the markers of their slots,
 * then the index of changes, then, published, the revision. So whoever reads a revision finds in the index what was
 * changed, and in the markers whether that is there still.
 */
export class ClusterRecordsStore implements RecordsStore {
  readonly #masters: ClusterMasters;
  readonly #proofs: SlotProofs;
  readonly #prefix: string;
  readonly #names: RecordNames;
  readonly #directory: GatewayDirectory;
  readonly #outage: Outage;
  /** What the masters were when everything began to be written anew. */
  #base = -1;

  constructor(address: RedisAddress, prefix: string, events: OutageEvents) {
    this.#prefix = prefix;
    this.#names = new RecordNames(prefix);
    this.#outage = new Outage(events);
    const masters = new ClusterMasters({
      address,
      prefixes: [this.#names.gateway('')],
      onError: this.#outage.failed,
      events: {
        onChanged: (names) => {
          this.#directory.heard(names);
        },
        onEverythingChanged: () => {
          this.#directory.missed();
        },
        onListening: () => {
          this.#directory.missed();
        },
        onDeaf: () => {
          this.#directory.missed();
        },
        onReady: () => undefined,
      },
    });
    this.#directory = new GatewayDirectory({
      // An acknowledgement may be at a master that is not known yet, so nothing is said before all agree who they are.
      hearing: true,
      get epoch() {
        return masters.epoch;
      },
      catchUp: () => this.#agree(),
      names: () => this.#scan(this.#names.gateway('')),
      read: (names) => this.#read(names),
    });
    this.#masters = masters;
    this.#proofs = new SlotProofs(masters, this.#names);
    masters.agree().catch(() => undefined);
  }

  async readMeta(): Promise<StoredMeta | null> {
    if (!this.#masters.hearing) await this.#agree();
    return storedMeta(await this.#get(this.#names.meta));
  }

  async begin(): Promise<boolean> {
    await this.#agree();
    this.#base = this.#masters.epoch;
    const meta = await this.#get(this.#names.meta);
    await this.#proofs.check(meta ?? '', storedMeta(meta)?.generation ?? '');
    return this.#proofs.missing === 0;
  }

  async writeMeta(meta: MetaRecord, revision: number): Promise<void> {
    await this.#agree();
    if (this.#masters.epoch !== this.#base) {
      throw new Error('the masters of the Cluster are not those that the records were written to; it is begun anew');
    }
    await this.#proofs.seal({ generation: meta.generation, revision });
    const name = this.#names.changedSlots;
    // Both or none: without the index nobody could tell what a slot lacks.
    const index = "redis.call('DEL', KEYS[1]) redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])";
    await callOne(this.#masters, { name, command: ['EVAL', index, '1', name, String(revision), everySlot] });
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

  async readRevision(): Promise<number> {
    return revisionIn(await this.#get(this.#names.revision)) ?? 0;
  }

  async publishRevision(revision: number): Promise<void> {
    const name = this.#names.revision;
    const command = ['EVAL', unlessFurther, '1', name, String(revision)];
    if ((await callOne(this.#masters, { name, command })) === 1) return;
    throw new Error('another registry has published a later revision; the store is looked at anew');
  }

  gateways(): Promise<readonly LiveGateway[]> {
    return this.#directory.list();
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

  async *#scan(prefix: string): AsyncGenerator<string> {
    for (const { commands } of this.#masters.all) yield* scanNames(commands, prefix);
  }

  async #read(names: readonly string[]): Promise<(string | null)[]> {
    const calls = names.map((name) => ({ name, command: ['GET', name] }));
    return (await callEach(this.#masters, calls)).map(asText);
  }

  async #get(name: string): Promise<string | null> {
    return asText(await callOne(this.#masters, { name, command: ['GET', name] }).catch(damagedText));
  }
}
