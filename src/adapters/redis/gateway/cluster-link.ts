import { KeyStoreUnavailable } from '../../../gateway/key-store.js';
import { setCommand } from '../calls.js';
import type { RedisAddress } from '../connection.js';
import { namesOfStep, type RecordNames, scanPages } from '../record-names.js';
import { malformedText } from '../record-text.js';
import type { AcknowledgementText, LinkEvents, RecordsLink } from '../records-link.js';
import { stringReply, callEach, callOne } from '../cluster/cluster-calls.js';
import { ClusterMasters } from '../cluster/cluster-masters.js';
import { parseSlotMarker, slotCount, slotOf } from '../cluster/hash-slots.js';
import { SlotProofs } from '../cluster/slot-proofs.js';

/**
 * A gateway's connection to the record store on the masters of a Cluster. Rejects a read from a slot that lacks a
 * change, because the record may be outdated.
 */
export class ClusterLink implements RecordsLink {
  readonly #masters: ClusterMasters;
  readonly #proofs: SlotProofs;
  readonly #names: RecordNames;

  constructor(address: RedisAddress, names: RecordNames, events: LinkEvents, onError: (error: Error) => void) {
    this.#names = names;
    this.#masters = new ClusterMasters({ address, prefixes: names.tracked, events, onError });
    this.#proofs = new SlotProofs(this.#masters, names);
    // Connect before the first heartbeat. If this fails, the heartbeat reports the failure.
    this.#masters.agree().catch(() => undefined);
  }

  get connected(): boolean {
    return this.#masters.connected;
  }

  get epoch(): number {
    return this.#masters.epoch;
  }

  get servers(): readonly (string | null)[] | null {
    return this.#masters.runIds;
  }

  get policies(): readonly string[] {
    return [...new Set(this.#masters.all.flatMap(({ policy }) => policy ?? []))];
  }

  get partLost(): string | null {
    const { missing } = this.#proofs;
    return missing === 0
      ? null
      : `changes that the registry has written are missing from ${missing} of the ${slotCount} slots of the Cluster`;
  }

  async readState(): Promise<[string | null, string | null]> {
    if (!this.#masters.connected) await this.#masters.agree();
    return Promise.all([this.#get(this.#names.meta), this.#get(this.#names.revision)]);
  }

  checkParts(meta: string, generation: string): Promise<void> {
    return this.#proofs.check(meta, generation);
  }

  /**
   * Makes all masters confirm the slot map, then waits for their invalidation messages. The registry writes records
   * only to masters that have confirmed the map. So the registry's writes have reached these masters, and the masters'
   * messages report every changed record.
   */
  async catchUp(): Promise<void> {
    await this.#masters.agree();
    await this.#masters.catchUp();
  }

  async read(name: string, generation: string): Promise<string | null> {
    const slot = slotOf(name);
    if (!(await this.#proofs.provesWhole(slot)))
      throw new KeyStoreUnavailable('a slot of the Cluster lacks changes that the registry has written');
    const text = await this.#get(name);
    return text ?? this.#readWithMarker(name, slot, generation);
  }

  receiveNotices(): Promise<void> {
    return this.#masters.catchUp();
  }

  text(name: string): Promise<string | null> {
    return this.#get(name);
  }

  async *names(prefix: string): AsyncGenerator<readonly string[]> {
    for (const { commands } of this.#masters.all) yield* scanPages(commands, prefix, namesOfStep);
  }

  async readSome(names: readonly string[]): Promise<(string | null | undefined)[]> {
    const slots = names.map(slotOf);
    const areWhole = await Promise.all(slots.map((slot) => this.#proofs.provesWhole(slot)));
    // One MGET per Redis key, because the keys are in different slots. GET would fail for a value that is not a string.
    const replies = await callEach(
      this.#masters,
      names.map((name) => ({ name, command: ['MGET', name] })),
    );
    return replies.map((reply, index) => {
      if (areWhole[index] !== true || !this.#proofs.isWhole(slots[index] ?? 0)) return undefined;
      return stringReply(Array.isArray(reply) ? reply[0] : null);
    });
  }

  async write(text: AcknowledgementText): Promise<void> {
    await callOne(this.#masters, setCommand(text));
  }

  async acknowledge(acknowledgement: AcknowledgementText, grantName: string): Promise<string | null> {
    const [, grant] = await Promise.all([this.write(acknowledgement), this.#get(grantName)]);
    return grant;
  }

  /**
   * Says who proves that no other server has taken over. In a Cluster, the masters do: they confirm the slot map in
   * `catchUp`, so no further query is needed.
   */
  witness(): 'masters' {
    return 'masters';
  }

  confirm(): Promise<boolean> {
    return Promise.resolve(true);
  }

  async remove(name: string): Promise<void> {
    await callOne(this.#masters, { name, command: ['DEL', name] });
  }

  close(): void {
    this.#masters.close();
  }

  /**
   * Reads a record together with its slot's marker, which states up to which change the slot is complete. Without a
   * marker of this generation (history of changes), the absence of a record proves nothing: the slot's master may have
   * been flushed, while another master still has the meta record.
   * @throws KeyStoreUnavailable if the marker is missing or has another generation
   */
  async #readWithMarker(name: string, slot: number, generation: string): Promise<string | null> {
    const reply = await callOne(this.#masters, { name, command: ['MGET', name, this.#proofs.markerName(slot)] });
    const [text, marker] = Array.isArray(reply) ? reply.map(stringReply) : [];
    if (parseSlotMarker(marker ?? null)?.generation === generation) return text ?? null;
    throw new KeyStoreUnavailable('a slot of the Cluster has lost all its records');
  }

  async #get(name: string): Promise<string | null> {
    return stringReply(await callOne(this.#masters, { name, command: ['GET', name] }).catch(malformedText));
  }
}
