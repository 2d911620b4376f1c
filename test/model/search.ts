// An explicit search of every state, breadth first, so that each counterexample is of minimal length.
import { Protocol } from './protocol.js';
import type { Mechanisms, Setup } from './rules.js';

/** The result of a search. */
export interface Result {
  /** The broken promise; null if none. */
  readonly broken: string | null;
  readonly states: number;
  /** Whether the search ended at its limit of states. */
  readonly isPartial: boolean;
  readonly seconds: number;
  /** The steps that lead to the broken promise. */
  readonly trace: readonly string[];
  /** The fields of the last state that are not 0. */
  readonly last: Readonly<Record<string, number>>;
}

/** The options of a search. */
export interface SearchOptions {
  /** Maximum number of states. */
  readonly limit?: number;
  /** Whether every state must have a way back to health (I3). This check needs eight bytes for each transition. */
  readonly heals?: boolean;
  /** Whether to check the other promises (I1, I2 and I4). */
  readonly promises?: boolean;
}

/** The visited states: their consecutive bytes, and a hash table of their numbers. */
class States {
  readonly #length: number;
  readonly #words: number;
  #bytes: Uint8Array;
  #view: Uint32Array;
  #table = new Int32Array(1 << 17).fill(-1);
  readonly #sought: Uint32Array;
  readonly #soughtBytes: Uint8Array;
  parents = new Int32Array(1 << 16);
  count = 0;

  constructor(length: number) {
    this.#length = length;
    this.#words = length / 4;
    this.#bytes = new Uint8Array(length << 16);
    this.#view = new Uint32Array(this.#bytes.buffer);
    this.#soughtBytes = new Uint8Array(length);
    this.#sought = new Uint32Array(this.#soughtBytes.buffer);
  }

  /** The bytes of a state. */
  get(id: number): Uint8Array {
    return this.#bytes.subarray(id * this.#length, (id + 1) * this.#length);
  }

  /** Returns the number of a state. A new state gets the next number. */
  intern(bytes: Uint8Array, parent: number): number {
    this.#soughtBytes.set(bytes);
    const mask = this.#table.length - 1;
    let slot = hash(this.#sought, 0, this.#words) & mask;
    for (let id = at(this.#table, slot); id >= 0; id = at(this.#table, slot)) {
      if (this.#equals(id)) return id;
      slot = (slot + 1) & mask;
    }
    const id = this.count++;
    if (id === this.parents.length) this.#grow();
    this.#bytes.set(bytes, id * this.#length);
    this.parents[id] = parent;
    this.#table[slot] = id;
    if (this.count * 2 > this.#table.length) this.#rehash();
    return id;
  }

  #equals(id: number): boolean {
    const from = id * this.#words;
    for (let word = 0; word < this.#words; word++) {
      if (this.#view[from + word] !== this.#sought[word]) return false;
    }
    return true;
  }

  #grow(): void {
    const bytes = new Uint8Array(this.#bytes.length * 2);
    const parents = new Int32Array(this.parents.length * 2);
    bytes.set(this.#bytes);
    parents.set(this.parents);
    this.#bytes = bytes;
    this.#view = new Uint32Array(bytes.buffer);
    this.parents = parents;
  }

  #rehash(): void {
    const table = new Int32Array(this.#table.length * 2).fill(-1);
    const mask = table.length - 1;
    for (let id = 0; id < this.count; id++) {
      let slot = hash(this.#view, id * this.#words, this.#words) & mask;
      while (at(table, slot) >= 0) slot = (slot + 1) & mask;
      table[slot] = id;
    }
    this.#table = table;
  }
}

/** The transitions between states, except faults and commands of administrators. */
class Transitions {
  #pairs = new Int32Array(1 << 20);
  #length = 0;

  add(from: number, to: number): void {
    if (this.#length === this.#pairs.length) {
      const pairs = new Int32Array(this.#pairs.length * 2);
      pairs.set(this.#pairs);
      this.#pairs = pairs;
    }
    this.#pairs[this.#length] = to;
    this.#pairs[this.#length + 1] = from;
    this.#length += 2;
  }

  /** The first state from which no healthy state is reachable; -1 if there is none. */
  findStuck(count: number, isGood: (id: number) => boolean): number {
    const pairs = this.#pairs;
    const starts = new Int32Array(count + 2);
    for (let pair = 0; pair < this.#length; pair += 2) {
      const after = at(pairs, pair) + 2;
      starts[after] = at(starts, after) + 1;
    }
    for (let id = 2; id < count + 2; id++) starts[id] = at(starts, id) + at(starts, id - 1);
    const sources = new Int32Array(this.#length / 2);
    for (let pair = 0; pair < this.#length; pair += 2) {
      const to = at(pairs, pair) + 1;
      sources[at(starts, to)] = at(pairs, pair + 1);
      starts[to] = at(starts, to) + 1;
    }
    const heals = new Uint8Array(count);
    const queue = new Int32Array(count);
    let tail = 0;
    const add = (id: number): void => {
      if (heals[id] === 1) return;
      heals[id] = 1;
      queue[tail++] = id;
    };
    for (let id = 0; id < count; id++) if (isGood(id)) add(id);
    for (let head = 0; head < tail; head++) {
      const id = at(queue, head);
      for (let source = at(starts, id); source < at(starts, id + 1); source++) add(at(sources, source));
    }
    return heals.indexOf(0);
  }
}

/** Visits every state of a world, until a promise is broken. */
export function search(mechanisms: Mechanisms, setup: Setup, options: SearchOptions = {}): Result {
  const { limit = 20e6, heals = true, promises = true } = options;
  const protocol = new Protocol(mechanisms, setup);
  const states = new States(protocol.first.length);
  const transitions = new Transitions();
  const began = performance.now();
  const result = (broken: string | null, isPartial: boolean, last: number): Result => ({
    broken,
    isPartial,
    states: states.count,
    seconds: (performance.now() - began) / 1000,
    trace: last < 0 ? [] : traceTo(protocol, states, last),
    last: last < 0 ? {} : protocol.describe(states.get(last)),
  });
  states.intern(protocol.first, -1);
  for (let id = 0; id < states.count; id++) {
    protocol.load(states.get(id));
    const broken = promises ? protocol.broken() : null;
    if (broken !== null) return result(broken, false, id);
    if (states.count > limit) return result(null, true, -1);
    protocol.successors((_, bytes, kind) => {
      const to = states.intern(bytes, id);
      if (heals && kind === 'step' && to !== id) transitions.add(id, to);
    });
  }
  if (!heals) return result(null, false, -1);
  const stuck = transitions.findStuck(states.count, (id) => {
    protocol.load(states.get(id));
    return protocol.isGood();
  });
  return result(stuck < 0 ? null : 'I3: no way back to health', false, stuck);
}

/**
 * Follows given steps, for a counterexample too deep for a search of every state.
 * Returns the promise that the last state breaks, or the first impossible step; null otherwise.
 */
export function follow(mechanisms: Mechanisms, setup: Setup, labels: readonly string[]): string | null {
  const protocol = new Protocol(mechanisms, setup);
  let state: Uint8Array | undefined = protocol.first;
  for (const label of labels) {
    protocol.load(state);
    const found: Uint8Array[] = [];
    protocol.successors((name, bytes) => {
      if (name === label) found.push(bytes.slice());
    });
    state = found[0];
    if (state === undefined) return `not possible: ${label}`;
  }
  protocol.load(state);
  return protocol.broken();
}

function traceTo(protocol: Protocol, states: States, last: number): string[] {
  const labels: string[] = [];
  for (let id = last; at(states.parents, id) >= 0; id = at(states.parents, id)) {
    let label = '';
    const wanted = Buffer.from(states.get(id));
    protocol.load(states.get(at(states.parents, id)));
    protocol.successors((name, bytes) => {
      if (wanted.equals(bytes)) label ||= name;
    });
    labels.unshift(label);
  }
  return labels;
}

function hash(words: Uint32Array, from: number, count: number): number {
  let mixed = 2166136261;
  for (let word = from; word < from + count; word++) {
    mixed = Math.imul(mixed ^ at(words, word), 16777619);
    mixed ^= mixed >>> 15;
  }
  mixed = Math.imul(mixed, 0x2c1b3c6d);
  return (mixed ^ (mixed >>> 13)) >>> 0;
}

/** An element of an array of numbers; the index is always in range. */
function at(numbers: Int32Array | Uint32Array, index: number): number {
  return numbers[index] ?? 0;
}
