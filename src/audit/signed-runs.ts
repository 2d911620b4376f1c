import { type ReadCheckpoint, readCheckpoint } from '../evidence/checkpoint.js';
import { InvalidNote, isSignedBy, type NoteKey, parseNote, receiptTimeOf } from '../evidence/signed-note.js';
import type { ChainCheck, RunProof } from './chain-check.js';
import { type Finding, type Position, rangeText } from './finding.js';
import type { Checkpoint as LineCheckpoint } from './sealed-line.js';
import type { RawLine } from './log-lines.js';
import { type GivenCheckpoint, SignedRun, timeOf, type Mismatch } from './signed-run.js';
import type { WitnessedList } from './witnessed-list.js';

/** A public key of an instance and the time in which it is valid, in milliseconds since 1970. */
export interface PinnedKey {
  readonly key: NoteKey;
  readonly from: number;
  readonly to: number;
}

const noteHead = '{"note":"';
/** The value of `--checkpoints` that queries the registry; also the file name of its checkpoints. */
export const registryWord = 'registry';

/**
 * Reads a checkpoint and requires the signature of a public key that was valid at the checkpoint's time.
 * @throws InvalidNote
 */
export function readPinned(note: string, keys: readonly PinnedKey[]): ReadCheckpoint {
  const checkpoint = readCheckpoint(
    note,
    keys.map(({ key }) => key),
  );
  const ofName = keys.filter(({ key }) => key.name === checkpoint.name);
  const counting = ofName.filter(({ from, to }) => from <= checkpoint.at && checkpoint.at <= to);
  // An ended key may be stolen: a newer valid key of the same name must not make it valid again.
  if (counting.length < ofName.length) requireSigned(note, counting);
  return checkpoint;
}

function requireSigned(note: string, keys: readonly PinnedKey[]): void {
  const signed = parseNote(note);
  if (!keys.some(({ key }) => isSignedBy(signed, key)))
    throw new InvalidNote('the public key that signed it was not valid at its time');
}

/**
 * Reads a line of a file of checkpoints.
 * @returns null for an empty line, and for an incomplete line of a process that was killed
 * @throws InvalidNote
 */
export function readGivenCheckpoint({ bytes, ...place }: RawLine, keys: readonly PinnedKey[]): GivenCheckpoint | null {
  const text = bytes?.toString('utf8').trim() ?? '?';
  if (text === '') return null;
  let note: unknown;
  try {
    ({ note } = JSON.parse(text) as { readonly note?: unknown });
  } catch {
    if (text.startsWith(noteHead) || noteHead.startsWith(text)) return null;
  }
  if (typeof note !== 'string') throw new InvalidNote('expected {"note":"…"}');
  return { ...readPinned(note, keys), place: { file: place.file, line: place.number }, note };
}

/** Compares the lines of a log with its signed checkpoints. */
export class SignedRuns {
  readonly #findings: Finding[] = [];
  readonly notes: string[] = [];
  readonly #runs = new Map<string, SignedRun>();
  readonly #keys: readonly PinnedKey[];
  readonly #since: number;
  readonly #witnessed: WitnessedList | null;
  /** How many lines of a run the registry knows. */
  readonly #knownToRegistry = new Map<string, number>();
  /** Start checkpoints. Each names the end of the previous run, whose checkpoints may follow later in the input. */
  readonly #starts: GivenCheckpoint[] = [];

  /**
   * @param since in milliseconds since 1970: a run whose newest checkpoint is older may be missing
   * @param witnessed the list of the witness whose receipts are checked; null: receipts are ignored
   */
  constructor(keys: readonly PinnedKey[], since: number, witnessed: WitnessedList | null = null) {
    [this.#keys, this.#since, this.#witnessed] = [keys, since, witnessed];
  }

  /** Adds notes and findings about the source of the checkpoints. */
  add({ notes, findings }: { readonly notes: readonly string[]; readonly findings: readonly Finding[] }): void {
    this.notes.push(...notes);
    this.#findings.push(...findings);
  }

  /** Reads one line of a checkpoint file. */
  take(line: RawLine): void {
    const place = { file: line.file, line: line.number };
    try {
      const checkpoint = readGivenCheckpoint(line, this.#keys);
      if (checkpoint !== null) this.#add(checkpoint);
      else if (line.bytes?.length !== 0)
        this.notes.push(`${line.file}:${line.number}: incomplete checkpoint of a process that was killed`);
    } catch (error) {
      if (!(error instanceof InvalidNote)) throw error;
      this.#findings.push({ ...place, kind: 'unsigned', message: `not a valid checkpoint: ${error.message}` });
    }
  }

  /** Links each run to its previous run. Call it after all checkpoints and before the first line of the log. */
  link(): void {
    const followers = new Map<string, GivenCheckpoint>();
    for (const start of this.#starts) {
      const { previous, run, place } = start;
      if (previous === undefined || previous === null) continue;
      const other = followers.get(previous.run);
      if (other !== undefined && other.run !== run)
        this.#fork(place, `two runs continue the run ${previous.run}: ${other.run} and ${run}`);
      followers.set(previous.run, start);
      const found = this.#runs.get(previous.run);
      // Another instance's key may be stolen: it must not decide where the log of this instance ended.
      if (found !== undefined && found.newest.name !== start.name)
        this.#fork(place, `the run ${run} of ${start.name} continues the run ${previous.run} of ${found.newest.name}`);
      else if (found !== undefined) found.found = { size: previous.size, hash: previous.hash, by: start };
    }
  }

  /** Compares the next line of a run with its signed checkpoints. @returns the difference; null if it matches */
  compare(run: string, sequence: number, hash: string): Mismatch | null {
    return this.#runs.get(run)?.compare(sequence, hash) ?? null;
  }

  /**
   * Compares the receipt and the list head in a checkpoint line with the list of the witness.
   * @returns the difference; null if they match
   */
  compareWitnessed({ note, head }: Pick<LineCheckpoint, 'note' | 'head'>): Mismatch | null {
    if (this.#witnessed === null) return null;
    const unlike = head === undefined ? null : this.#witnessed.unlike(head);
    if (unlike !== null) return { kind: 'rewritten', message: unlike };
    if (note === undefined) return null;
    try {
      const { run, size } = readPinned(note, this.#keys);
      return receiptTimeOf(parseNote(note), this.#witnessed.key) === null
        ? null
        : this.#lostBy(this.#witnessed, run, size);
    } catch (error) {
      if (!(error instanceof InvalidNote)) throw error;
      return { kind: 'unsigned', message: `the checkpoint in this line is invalid: ${error.message}` };
    }
  }

  /** How many of the given lines of a run are proved by signatures. */
  proofOf(run: string, lines: number): RunProof {
    const { proved = null, witnessed = null, newest = null } = this.#runs.get(run) ?? {};
    const signedTo = proved?.size ?? 0;
    return {
      ...{ run, name: newest?.name ?? null, signedTo, signedAt: proved?.at ?? null, unsigned: lines - signedTo },
      ...{ witnessedTo: witnessed?.size ?? 0, witnessedAt: witnessed?.receivedAt ?? null },
    };
  }

  /**
   * Reports invalid checkpoints, unsigned chains, and signed lines that are missing.
   * @param areRequired whether missing lines and runs are findings
   */
  judge(
    chains: readonly Pick<ChainCheck, 'id' | 'newest' | 'isUnderSecret' | 'reported'>[],
    areRequired: boolean,
  ): Finding[] {
    const unsigned = chains.flatMap(({ id, newest, isUnderSecret }): Finding[] => {
      if (isUnderSecret || newest === null || this.#runs.has(id)) return [];
      const message = `the chain ${id} has no signed checkpoint and no secret: anyone could have made it`;
      return [{ ...newest.place, kind: 'unsigned', message }];
    });
    const unlike = this.#unproved(chains);
    if (!areRequired) this.notes.push(...unlike.map(({ message }) => message));
    return [
      ...this.#findings,
      ...unsigned,
      ...(areRequired ? [...unlike, ...this.#missing(chains), ...this.#nextMissing(chains)] : []),
    ];
  }

  /** Reports a next run that a signed end names, if neither a line nor a checkpoint of it was given. */
  #nextMissing(chains: readonly Pick<ChainCheck, 'id'>[]): Finding[] {
    const given = new Set(chains.map(({ id }) => id));
    return [...this.#runs.values()].flatMap(({ newest }): Finding[] => {
      const { run, next, at, place } = newest;
      if (next === undefined || at < this.#since || this.#runs.has(next) || given.has(next)) return [];
      const message = `the run ${next} is missing, which continues the run ${run} as signed at ${timeOf(newest)}`;
      return [{ ...place, kind: 'missing', message }];
    });
  }

  /**
   * Reports runs whose lines do not begin with line 1: they cannot be compared with the checkpoints. Skips runs
   * that already have a finding.
   */
  #unproved(chains: readonly Pick<ChainCheck, 'id' | 'newest' | 'reported'>[]): Finding[] {
    return chains.flatMap(({ id, newest, reported }): Finding[] => {
      const signed = this.#runs.get(id);
      if (signed === undefined || newest === null || reported > 0 || signed.isUnlike) return [];
      const size = signed.signedUpTo(newest.sequence);
      if ((signed.proved?.size ?? 0) >= size) return [];
      const message = `the lines of the run ${id} begin with line ${signed.first}: the signature of ${rangeText({ from: 1, to: size })} cannot prove them`;
      return [{ ...newest.place, kind: 'unsigned', message }];
    });
  }

  #missing(chains: readonly Pick<ChainCheck, 'id' | 'newest'>[]): Finding[] {
    const newestOf = new Map(chains.map(({ id, newest }) => [id, newest]));
    return [...this.#runs].flatMap(([run, signed]): Finding[] => {
      const { size, by } = signed.required;
      const newest = newestOf.get(run) ?? null;
      if (signed.newest.at < this.#since || (newest !== null && newest.sequence >= size)) return [];
      const from = (newest?.sequence ?? 0) + 1;
      return [
        {
          ...(newest?.place ?? by.place),
          kind: newest === null ? 'missing' : 'truncated',
          message: `${rangeText({ from, to: size })} of the run ${run} ${from === size ? 'is' : 'are'} missing, although signed at ${timeOf(by)}`,
        },
      ];
    });
  }

  #add(checkpoint: GivenCheckpoint): void {
    const { run, size, root, at, place, occasion } = checkpoint;
    const signed = this.#runs.get(run) ?? new SignedRun(checkpoint);
    this.#runs.set(run, signed);
    if (!signed.newest.runKey.bytes.equals(checkpoint.runKey.bytes)) {
      this.#fork(place, `the run ${run} is signed with two run keys: two processes wrote it`);
      return;
    }
    const receivedAt = this.#witnessed && receiptTimeOf(parseNote(checkpoint.note), this.#witnessed.key);
    const kept = { size, root: root.toString('hex'), at, place, receivedAt };
    if (place.file === registryWord)
      this.#knownToRegistry.set(run, Math.max(size, this.#knownToRegistry.get(run) ?? 0));
    else if (receivedAt !== null && this.#witnessed?.isGiven === true) {
      const lost = this.#lostBy(this.#witnessed, run, size);
      if (lost !== null) this.#findings.push({ ...place, ...lost });
    }
    const same = signed.checkpoints.get(size);
    if (same !== undefined && same.root !== kept.root)
      this.#fork(place, `${rangeText({ from: 1, to: size })} of the run ${run}: two different versions are signed`);
    if (same === undefined) signed.checkpoints.set(size, kept);
    else same.receivedAt ??= receivedAt;
    const isNewer = size > signed.newest.size || (size === signed.newest.size && occasion !== 'periodic');
    if (isNewer) signed.newest = checkpoint;
    if (occasion === 'start') this.#starts.push(checkpoint);
  }

  /** Compares a receipt with what its witness stores. A checkpoint from a file does not show that the witness has it. */
  #lostBy(witnessed: WitnessedList, run: string, size: number): Mismatch | null {
    const known = (witnessed.isGiven ? this.#knownToRegistry.get(run) : this.#runs.get(run)?.newest.size) ?? 0;
    if (known >= size) return null;
    const message = `the witness signed a receipt for ${size} lines of the run ${run}, but its newest checkpoint covers ${known}`;
    return { kind: 'rewritten', message };
  }

  #fork(place: Position, message: string): void {
    this.#findings.push({ ...place, kind: 'forked', message });
  }
}
