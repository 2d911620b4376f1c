import type { RecordNames } from '../record-names.js';
import { asText, callEach, callOne } from './cluster-calls.js';
import type { ClusterMasters } from './cluster-masters.js';
import {
  parseSlotMarker,
  replaceMarker,
  slotCount,
  type SlotMarker,
  slotMarkerText,
  slotOf,
  slotTags,
} from './hash-slots.js';

/** In the index of changes: every slot was changed, by a rebuild. */
const everySlot = 'all';

const slotsOfStep = 2_000;

/**
 * Which slots hold every change that was made in them. Changes are copied to replicas after they were confirmed, so a
 * replica that is promoted may lack the last ones, a revocation perhaps; and one master may be emptied while the others
 * are not. The index of changes, on one master, tells the newest change of each slot; the slot's marker, beside its
 * records, tells up to which change it is complete.
 */
export class SlotProofs {
  readonly #masters: ClusterMasters;
  readonly #names: RecordNames;
  readonly #markerNames: readonly string[];
  readonly #texts = new Array<string | null>(slotCount).fill(null);
  readonly #sessions = new Array<object | null>(slotCount).fill(null);
  readonly #isWhole = new Uint8Array(slotCount);
  readonly #needed = new Float64Array(slotCount);
  #neededEverywhere = 0;
  #newest = -1;
  #generation: string | null = null;
  #seed: string | null = null;
  /** The look that is under way. */
  #checking: Promise<void> = Promise.resolve();

  constructor(masters: ClusterMasters, names: RecordNames) {
    this.#masters = masters;
    this.#names = names;
    this.#markerNames = slotTags().map((tag) => names.slotMarker(tag));
  }

  /** Whether nothing is missing in a slot, as far as was looked. */
  isWhole(slot: number): boolean {
    return this.#isWhole[slot] === 1 && this.#wasSeen(slot);
  }

  /** How many slots lack something. */
  get missing(): number {
    return this.#isWhole.reduce((count, isWhole) => count - isWhole, slotCount);
  }

  markerName(slot: number): string {
    return this.#markerNames[slot] ?? '';
  }

  /**
   * Looks at every slot that may not be as it was: changed since, at another master, or emptied.
   * @param seed the meta record as it stands; another one means that records were written anew
   */
  check(seed: string, generation: string): Promise<void> {
    const checking = this.#check(seed, generation);
    this.#checking = checking.catch(() => undefined);
    return checking;
  }

  /**
   * Whether nothing is missing in a slot. Waits for a look that is under way: a slot that was changed is not known to be whole
   * before its marker was read, and a request must not be refused for that.
   */
  async provesWhole(slot: number): Promise<boolean> {
    if (!this.isWhole(slot)) await this.#checking;
    return this.isWhole(slot);
  }

  async #check(seed: string, generation: string): Promise<void> {
    if (seed !== this.#seed) this.#sessions.fill(null);
    this.#seed = seed;
    this.#begin(generation);
    await this.#readIndex();
    const open = [...this.#sessions.keys()].filter((slot) => !this.#wasSeen(slot));
    // Each step keeps what it has read: if one late reply discarded everything, a busy gateway would begin anew with each beat.
    for (let start = 0; start < open.length; start += slotsOfStep) {
      const slots = open.slice(start, start + slotsOfStep);
      // Looked up before the answers come: what a master said before it was emptied does not count.
      const sessions = slots.map((slot) => this.#masters.owner(slot).session);
      const answers = await callEach(
        this.#masters,
        slots.map((slot) => ({ name: this.markerName(slot), command: ['GET', this.markerName(slot)] })),
      );
      slots.forEach((slot, index) => {
        this.#accept(slot, asText(answers[index]), sessions[index] ?? null);
      });
    }
  }

  /** Whether the slot's marker was read since its master was last listened to anew. */
  #wasSeen(slot: number): boolean {
    return this.#sessions[slot] === this.#masters.owner(slot).session;
  }

  /** Has whole slots say that they hold a change; of the others that is not known. */
  async advance(slots: readonly number[], revision: number): Promise<void> {
    const whole = slots.filter((slot) => this.isWhole(slot));
    await this.#replace(whole, (held) => ({
      generation: held?.generation ?? '',
      revision: Math.max(held?.revision ?? 0, revision),
    }));
  }

  /** Has every slot say that it holds everything up to a revision; for whoever has just written everything. */
  async seal(marker: SlotMarker): Promise<void> {
    const slots = [...this.#texts.keys()];
    // They say so. To write them all takes seconds, in which a gateway believes nothing that it does not hold.
    if (marker.generation === this.#generation && slots.every((slot) => this.isWhole(slot))) return;
    this.#begin(marker.generation);
    await this.#replace(slots, () => marker);
    const name = this.#names.changedSlots;
    // Both or none: without the index nobody could tell what a slot lacks.
    const index = "redis.call('DEL', KEYS[1]) redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])";
    await callOne(this.#masters, { name, command: ['EVAL', index, '1', name, String(marker.revision), everySlot] });
  }

  /** The numbers of another history are not comparable. */
  #begin(generation: string): void {
    if (generation === this.#generation) return;
    this.#generation = generation;
    this.#needed.fill(0);
    [this.#neededEverywhere, this.#newest] = [0, -1];
  }

  async #replace(slots: readonly number[], next: (held: SlotMarker | null) => SlotMarker): Promise<void> {
    const changes = slots.map((slot) => {
      const before = this.#texts[slot] ?? null;
      return { slot, before: before ?? '', after: slotMarkerText(next(parseSlotMarker(before))) };
    });
    const sessions = slots.map((slot) => this.#masters.owner(slot).session);
    // Until it is known what became of it, nothing is known of the slot.
    for (const slot of slots) this.#sessions[slot] = null;
    const answers = await callEach(
      this.#masters,
      changes.map(({ slot, before, after }) => {
        const name = this.markerName(slot);
        return { name, command: ['EVAL', replaceMarker, '1', name, before, after] };
      }),
    );
    changes.forEach(({ slot, after }, index) => {
      if (answers[index] === 1) this.#accept(slot, after, sessions[index] ?? null);
    });
    if (answers.some((answer) => answer !== 1)) {
      throw new Error('a part of the store has lost changes while it was written');
    }
  }

  async #readIndex(): Promise<void> {
    const name = this.#names.changedSlots;
    const answer = await callOne(this.#masters, {
      name,
      command: ['ZRANGE', name, `(${this.#newest}`, '+inf', 'BYSCORE', 'WITHSCORES'],
    });
    const parts = Array.isArray(answer) ? answer.map(String) : [];
    for (let at = 0; at + 1 < parts.length; at += 2) {
      const [member = '', revision] = [parts[at], Number(parts[at + 1])];
      if (!Number.isSafeInteger(revision)) continue;
      this.#newest = Math.max(this.#newest, revision);
      if (member === everySlot) {
        this.#neededEverywhere = revision;
        this.#sessions.fill(null);
      }
      const slot = Number(member);
      if (!Number.isInteger(slot) || slot < 0 || slot >= slotCount) continue;
      this.#needed[slot] = revision;
      this.#sessions[slot] = null;
    }
  }

  #accept(slot: number, text: string | null, session: object | null): void {
    const marker = parseSlotMarker(text);
    const needed = Math.max(this.#needed[slot] ?? 0, this.#neededEverywhere);
    this.#texts[slot] = text;
    this.#sessions[slot] = session;
    this.#isWhole[slot] = marker?.generation === this.#generation && marker.revision >= needed ? 1 : 0;
  }
}

/** The slots of some names, each once. */
export function slotsOf(names: readonly string[]): number[] {
  return [...new Set(names.map(slotOf))];
}
