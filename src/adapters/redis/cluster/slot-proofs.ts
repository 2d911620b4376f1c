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

/**
 * A member of the change index, which is a sorted set with the newest change of each slot. This member stands for all
 * slots. It is used after a rewrite of all records, in place of one member for each slot.
 */
const everySlot = 'all';

const slotsOfStep = 2_000;

/**
 * Tracks which slots contain all changes. Redis replicates asynchronously, so a promoted replica can lack a revocation.
 * A master that was flushed lacks all records. Each change has a number, its revision. A change index on one master
 * stores the newest revision of each slot. A marker in each slot stores the revision up to which the slot is complete.
 * If the marker has a lower revision than the index, the slot lacks a change.
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
  /** Resolves when the newest `check` has ended, even if it failed. Already resolved if no check is running. */
  #checking: Promise<void> = Promise.resolve();

  constructor(masters: ClusterMasters, names: RecordNames) {
    this.#masters = masters;
    this.#names = names;
    this.#markerNames = slotTags().map((tag) => names.slotMarker(tag));
  }

  /** Whether the slot had every change in the last check, and its master has not been replaced or flushed since. */
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
   * Reads the markers of the slots that could now lack a change. These are the slots for which the index lists a new
   * change, and the slots whose master was replaced or flushed.
   * @param seed the text of the meta record, which describes the store; a different text means that all records were
   * rewritten, so all markers are read again
   */
  check(seed: string, generation: string): Promise<void> {
    const checking = this.#check(seed, generation);
    this.#checking = checking.catch(() => undefined);
    return checking;
  }

  /**
   * Whether the slot has every change. First waits for a running check. A slot with a recent change counts as
   * incomplete until the check has read the slot's marker, so without the wait, requests for the slot's records would
   * fail.
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
    // Keep the results of each batch. Otherwise one late reply would discard all results, and a busy gateway would
    // start again in each heartbeat.
    for (let start = 0; start < open.length; start += slotsOfStep) {
      const slots = open.slice(start, start + slotsOfStep);
      // Get the sessions before reading the markers. A flush or a lost connection begins a new session, and a marker
      // that was read in an earlier session does not count.
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

  /**
   * Whether the slot's marker was read since the index last listed a change of the slot, and since the last reconnect
   * or flush of the slot's master.
   */
  #wasSeen(slot: number): boolean {
    return this.#sessions[slot] === this.#masters.owner(slot).session;
  }

  /**
   * Raises the markers of complete slots to this revision. Leaves the marker of an incomplete slot unchanged, because a
   * raised marker would state that the slot has every change.
   */
  async advance(slots: readonly number[], revision: number): Promise<void> {
    const whole = slots.filter((slot) => this.isWhole(slot));
    await this.#replace(whole, (held) => ({
      generation: held?.generation ?? '',
      revision: Math.max(held?.revision ?? 0, revision),
    }));
  }

  /**
   * Marks every slot as complete up to the revision of this marker. Must be called directly after all records were
   * written.
   */
  async seal(marker: SlotMarker): Promise<void> {
    const slots = [...this.#texts.keys()];
    // Skip the write if all slots are already marked as complete. Rewriting the markers takes seconds, and meanwhile
    // gateways can use only the records in their caches.
    if (marker.generation === this.#generation && slots.every((slot) => this.isWhole(slot))) return;
    this.#begin(marker.generation);
    await this.#replace(slots, () => marker);
    const name = this.#names.changedSlots;
    // One script for both commands: if the index were deleted but not written, readers could not detect missing
    // changes.
    const index = "redis.call('DEL', KEYS[1]) redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])";
    await callOne(this.#masters, { name, command: ['EVAL', index, '1', name, String(marker.revision), everySlot] });
  }

  /**
   * Forgets all revisions if the generation has changed. A generation is one unbroken history of changes, and revisions
   * of different generations cannot be compared.
   */
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
    // Until the replies arrive, the state of these slots is unknown.
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
      throw new Error(
        'a slot of the Cluster changed during the write: it lost changes, or another Redis client wrote to it',
      );
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

/** Returns the hash slots of these Redis keys, without duplicates. */
export function slotsOf(names: readonly string[]): number[] {
  return [...new Set(names.map(slotOf))];
}
