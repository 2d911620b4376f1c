import type { RecordNames } from '../record-names.js';
import { stringReply, callEach, callOne } from './cluster-calls.js';
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

/** Member of the change index for a rebuild, which changed every slot. */
const everySlot = 'all';

const slotsOfStep = 2_000;

/**
 * Tracks which slots contain every change made in them.
 * Redis replicates after it has replied. A promoted replica may therefore lack the last changes, for example a
 * revocation. One master may also be emptied while the others are not.
 * The change index, on one master, stores the newest revision of each slot. A slot's marker, next to its records,
 * stores the revision up to which the slot is complete.
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
  /** The newest check of the markers; resolved when no check is running. */
  #checking: Promise<void> = Promise.resolve();

  constructor(masters: ClusterMasters, names: RecordNames) {
    this.#masters = masters;
    this.#names = names;
    this.#markerNames = slotTags().map((tag) => names.slotMarker(tag));
  }

  /** Whether no change is missing in the slot, as of the last check. */
  isWhole(slot: number): boolean {
    return this.#isWhole[slot] === 1 && this.#wasSeen(slot);
  }

  /** Number of slots that lack a change. */
  get missing(): number {
    return this.#isWhole.reduce((count, isWhole) => count - isWhole, slotCount);
  }

  markerName(slot: number): string {
    return this.#markerNames[slot] ?? '';
  }

  /**
   * Reads the marker of every slot that may have changed: its index entry is newer, its master is another one, or its
   * master was flushed.
   * @param seed the meta record's text; a different text means that the records were rewritten
   */
  check(seed: string, generation: string): Promise<void> {
    const checking = this.#check(seed, generation);
    this.#checking = checking.catch(() => undefined);
    return checking;
  }

  /**
   * Whether no change is missing in the slot. Waits for a running check: a changed slot counts as complete only once
   * its marker has been read, and the request must not fail for that.
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
    // Each batch keeps its results. If one late reply discarded them all, a busy gateway would start again at each
    // beat.
    for (let start = 0; start < open.length; start += slotsOfStep) {
      const slots = open.slice(start, start + slotsOfStep);
      // A flush begins a new session and invalidates each marker that was read before it. So note the sessions first.
      const sessions = slots.map((slot) => this.#masters.owner(slot).session);
      const replies = await callEach(
        this.#masters,
        slots.map((slot) => ({ name: this.markerName(slot), command: ['GET', this.markerName(slot)] })),
      );
      slots.forEach((slot, index) => {
        this.#accept(slot, stringReply(replies[index]), sessions[index] ?? null);
      });
    }
  }

  /** Whether the slot's marker was read in the present session of its master. */
  #wasSeen(slot: number): boolean {
    return this.#sessions[slot] === this.#masters.owner(slot).session;
  }

  /** Raises the markers of complete slots to this revision. An incomplete slot keeps its marker. */
  async advance(slots: readonly number[], revision: number): Promise<void> {
    const whole = slots.filter((slot) => this.isWhole(slot));
    await this.#replace(whole, (held) => ({
      generation: held?.generation ?? '',
      revision: Math.max(held?.revision ?? 0, revision),
    }));
  }

  /** Marks every slot as complete up to a revision. Only for a caller that has just written all records. */
  async seal(marker: SlotMarker): Promise<void> {
    const slots = [...this.#texts.keys()];
    // All slots are marked already. Rewriting all markers takes seconds, in which gateways trust only records that they
    // hold.
    if (marker.generation === this.#generation && slots.every((slot) => this.isWhole(slot))) return;
    this.#begin(marker.generation);
    await this.#replace(slots, () => marker);
    const name = this.#names.changedSlots;
    // Both commands or neither: without the index, no reader could see which changes a slot lacks.
    const index = "redis.call('DEL', KEYS[1]) redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])";
    await callOne(this.#masters, { name, command: ['EVAL', index, '1', name, String(marker.revision), everySlot] });
  }

  /** Revisions of different generations cannot be compared. */
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
    // Until the reply arrives, the state of these slots is unknown.
    for (const slot of slots) this.#sessions[slot] = null;
    const replies = await callEach(
      this.#masters,
      changes.map(({ slot, before, after }) => {
        const name = this.markerName(slot);
        return { name, command: ['EVAL', replaceMarker, '1', name, before, after] };
      }),
    );
    changes.forEach(({ slot, after }, index) => {
      if (replies[index] === 1) this.#accept(slot, after, sessions[index] ?? null);
    });
    if (replies.some((reply) => reply !== 1)) {
      throw new Error('a slot of the Cluster lost changes during the write');
    }
  }

  async #readIndex(): Promise<void> {
    const name = this.#names.changedSlots;
    const reply = await callOne(this.#masters, {
      name,
      command: ['ZRANGE', name, `(${this.#newest}`, '+inf', 'BYSCORE', 'WITHSCORES'],
    });
    const parts = Array.isArray(reply) ? reply.map(String) : [];
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

/** The slots of these names, without duplicates. */
export function slotsOf(names: readonly string[]): number[] {
  return [...new Set(names.map(slotOf))];
}
