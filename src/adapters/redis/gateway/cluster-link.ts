import { KeyStoreUnavailable } from '../../../gateway/ports.js';
import { setCommand } from '../calls.js';
import type { RedisAddress } from '../connection.js';
import { namesOfStep, type RecordNames, scanPages } from '../record-names.js';
import { damagedText } from '../record-text.js';
import type { AcknowledgementText, LinkEvents, RecordsLink } from '../records-link.js';
import { asText, callEach, callOne } from '../cluster/cluster-calls.js';
import { ClusterMasters } from '../cluster/cluster-masters.js';
import { parseSlotMarker, slotCount, slotOf } from '../cluster/hash-slots.js';
import { SlotProofs } from '../cluster/slot-proofs.js';

/** The records on the masters of a Cluster. About a slot that lacks a change, nothing is answered. */
export class ClusterLink implements RecordsLink {
  readonly #masters: ClusterMasters;
  readonly #proofs: SlotProofs;
  readonly #names: RecordNames;

  constructor(address: RedisAddress, names: RecordNames, events: LinkEvents, onError: (error: Error) => void) {
    this.#names = names;
    this.#masters = new ClusterMasters({ address, prefixes: names.tracked, events, onError });
    this.#proofs = new SlotProofs(this.#masters, names);
    // So that the first beat finds them connected; it is also what tells of a failure.
    this.#masters.agree().catch(() => undefined);
  }

  get hearing(): boolean {
    return this.#masters.hearing;
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
    return missing === 0 ? null : `${missing} of the ${slotCount} slots of the Cluster lack changes that were made`;
  }

  async readState(): Promise<[string | null, string | null]> {
    if (!this.#masters.hearing) await this.#masters.agree();
    return Promise.all([this.#get(this.#names.meta), this.#get(this.#names.revision)]);
  }

  /**
   * The order matters. What the caller read was published after its records were written, at masters that all confirmed.
   * So whoever still confirms the same map now, after that, is where they were written, and the notices are on the way.
   */
  async catchUp(meta: string, generation: string): Promise<void> {
    await this.#proofs.check(meta, generation);
    await this.#masters.agree();
    await this.#masters.catchUp();
  }

  async read(name: string, generation: string): Promise<string | null> {
    const slot = slotOf(name);
    if (!(await this.#proofs.provesWhole(slot)))
      throw new KeyStoreUnavailable('a slot of the Cluster lacks changes that were made');
    const text = await this.#get(name);
    return text ?? this.#readWithMarker(name, slot, generation);
  }

  heard(): Promise<void> {
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
    // MGET of one name each: they are in different slots, and GET has an error for what is no text.
    const answers = await callEach(
      this.#masters,
      names.map((name) => ({ name, command: ['MGET', name] })),
    );
    return answers.map((answer, index) => {
      if (areWhole[index] !== true || !this.#proofs.isWhole(slots[index] ?? 0)) return undefined;
      return asText(Array.isArray(answer) ? answer[0] : null);
    });
  }

  async write(text: AcknowledgementText): Promise<void> {
    await callOne(this.#masters, setCommand(text));
  }

  async acknowledge(acknowledgement: AcknowledgementText, grantName: string): Promise<string | null> {
    const [, grant] = await Promise.all([this.write(acknowledgement), this.#get(grantName)]);
    return grant;
  }

  /** Whoever has caught up with the masters has had all of them confirm the map. */
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

  /** One master may be emptied while the meta record is on another: that a record is not there, its own slot must say. */
  async #readWithMarker(name: string, slot: number, generation: string): Promise<string | null> {
    const answer = await callOne(this.#masters, { name, command: ['MGET', name, this.#proofs.markerName(slot)] });
    const [text, marker] = Array.isArray(answer) ? answer.map(asText) : [];
    if (parseSlotMarker(marker ?? null)?.generation === generation) return text ?? null;
    throw new KeyStoreUnavailable('a slot of the Cluster was emptied');
  }

  async #get(name: string): Promise<string | null> {
    return asText(await callOne(this.#masters, { name, command: ['GET', name] }).catch(damagedText));
  }
}
