import { InvalidNote, isSignedBy, parseNote } from '../evidence/signed-note.js';
import type { ChainCheck, RunProof } from './chain-check.js';
import { counted, type Finding, type Position, rangeText } from './finding.js';
import { clockToleranceMilliseconds, type PinnedKey, readGivenCheckpoint, readPinned } from './pinned-keys.js';
import type { Checkpoint as LineCheckpoint } from './sealed-line.js';
import type { RawLine } from './log-lines.js';
import { type GivenCheckpoint, SignedRun, timeOf, type Mismatch } from './signed-run.js';
import type { WitnessedList } from './witnessed-list.js';

/**
 * The value of `--checkpoints` that stands for the checkpoints of the registry. Findings (reported defects) in these
 * checkpoints have it as their file name.
 */
export const registryWord = 'registry';

/** Compares the lines of a log with signed checkpoints. A run is the lines of one gateway process. */
export class SignedRuns {
  readonly #findings: Finding[] = [];
  readonly notes: string[] = [];
  readonly #runs = new Map<string, SignedRun>();
  /**
   * The run (gateway process) of the last compared line. It is cached, because most lines belong to the same run as the
   * line before.
   */
  #compared: { readonly id: string; readonly signed: SignedRun | undefined } = { id: '', signed: undefined };
  readonly #keys: readonly PinnedKey[];
  readonly #since: number;
  readonly #witnessed: WitnessedList | null;
  #newestAt = -Infinity;
  /** Checkpoints with over 60 s between signing and arrival at the registry: their count, and the first one's times. */
  readonly #apart = { count: 0, first: null as string | null };
  /** For each run (gateway process), the number of lines in the newest checkpoint that the registry stores. */
  readonly #knownToRegistry = new Map<string, number>();
  /**
   * The start checkpoints of all gateway processes. Each states the last line of the previous process. `link` evaluates
   * them after all checkpoints were read, because the checkpoints of the previous process can come later.
   */
  readonly #starts: GivenCheckpoint[] = [];

  /**
   * @param since in milliseconds since 1970. The loss of the last (or all) signed lines of a gateway process is
   *   reported only if its newest checkpoint is not older than this time.
   * @param witnessed the registry's list of checkpoints; null: the registry's receipts (its signatures under
   *   checkpoints) are ignored
   */
  constructor(keys: readonly PinnedKey[], since: number, witnessed: WitnessedList | null = null) {
    [this.#keys, this.#since, this.#witnessed] = [keys, since, witnessed];
  }

  /** Adds the notes and findings that resulted from fetching the registry's checkpoints. */
  add({ notes, findings }: { readonly notes: readonly string[]; readonly findings: readonly Finding[] }): void {
    this.notes.push(...notes);
    this.#findings.push(...findings);
  }

  /** Reads one line of a checkpoint file. An invalid checkpoint becomes a finding (reported defect). */
  take(line: RawLine): void {
    const place = { file: line.file, line: line.number };
    try {
      const checkpoint = readGivenCheckpoint(line, this.#keys, this.#witnessed?.keys ?? null);
      if (checkpoint !== null) this.#add(checkpoint);
      else if (line.bytes?.length !== 0)
        this.notes.push(`${line.file}:${line.number}: incomplete checkpoint of a process that was killed`);
    } catch (error) {
      if (!(error instanceof InvalidNote)) throw error;
      this.#findings.push({ ...place, kind: 'unsigned', message: `not a valid checkpoint: ${error.message}` });
    }
  }

  /**
   * Links the lines of each gateway process (`run`) to those of the previous process, and reports contradictory links.
   * Call it after all checkpoints were read and before the first line of the log.
   */
  link(): void {
    const followers = new Map<string, GivenCheckpoint>();
    for (const start of this.#starts) {
      const { previous, run, place } = start;
      if (previous === undefined || previous === null) continue;
      const other = followers.get(previous.run);
      if (other !== undefined && other.run !== run)
        this.#fork(
          place,
          `two runs (logs of one process each) claim to continue the run ${previous.run}: ${other.run} and ${run}`,
        );
      followers.set(previous.run, start);
      const found = this.#runs.get(previous.run);
      // A thief of another gateway's key could forge a start checkpoint. Such a checkpoint must not decide where this
      // gateway's log ended.
      if (found !== undefined && !this.#isOneInstance(found.newest, start))
        this.#fork(
          place,
          `the run ${run} (log of one process) of ${start.name} claims to continue the run ${previous.run}, which belongs to another gateway, ${found.newest.name}`,
        );
      else if (found !== undefined) found.found = { size: previous.size, hash: previous.hash, by: start };
    }
  }

  /**
   * Whether both checkpoints are of the same gateway: they have the same name, or the same key signed both. A gateway
   * keeps its key when it is renamed.
   */
  #isOneInstance(one: GivenCheckpoint, other: GivenCheckpoint): boolean {
    if (one.name === other.name) return true;
    const [signers, others] = [one, other].map(({ name, note }) => {
      const signed = parseNote(note);
      return this.#keys.filter(({ key }) => key.name === name && isSignedBy(signed, key)).map(({ key }) => key.bytes);
    });
    return signers?.some((bytes) => others?.some((same) => same.equals(bytes))) === true;
  }

  /**
   * Compares the next line of a gateway process with its signed checkpoints. @returns how it differs; null if it
   * matches
   */
  compare(run: string, sequence: number, hash: string): Mismatch | null {
    if (run !== this.#compared.id) this.#compared = { id: run, signed: this.#runs.get(run) };
    return this.#compared.signed?.compare(sequence, hash) ?? null;
  }

  /**
   * Compares a checkpoint line of the log with the registry's list of checkpoints. The line can contain a receipt,
   * whose time is stored, and a list head: the length and the Merkle root of the list, as signed by the registry.
   * @returns the defect that was found, such as a removed checkpoint; null if nothing contradicts the line
   */
  compareWitnessed({ note, head }: Pick<LineCheckpoint, 'note' | 'head'>): Mismatch | null {
    if (this.#witnessed === null) return null;
    const unlike = head === undefined ? null : this.#witnessed.unlike(head);
    if (unlike !== null) return { kind: 'rewritten', message: unlike };
    if (note === undefined) return null;
    try {
      const { run, size, root } = readPinned(note, this.#keys, this.#witnessed.keys);
      const receivedAt = this.#witnessed.keys.receiptTimeOf(parseNote(note));
      if (receivedAt === null) return null;
      this.#runs.get(run)?.receive(size, root.toString('hex'), receivedAt);
      return this.#lostBy(this.#witnessed, run, size);
    } catch (error) {
      if (!(error instanceof InvalidNote)) throw error;
      return { kind: 'unsigned', message: `the checkpoint in this line is invalid: ${error.message}` };
    }
  }

  /** Whether a checkpoint of this run (the lines of one gateway process) was given. */
  has(run: string): boolean {
    return this.#runs.has(run);
  }

  /** The time of the newest checkpoint, in milliseconds since 1970; -Infinity without a checkpoint. */
  get newestAt(): number {
    return this.#newestAt;
  }

  /**
   * Returns how far signatures and receipts cover the lines of each gateway process. Includes processes whose lines are
   * all missing.
   */
  proofs(chains: readonly Pick<ChainCheck, 'id' | 'lines' | 'newest'>[]): RunProof[] {
    const given = new Set(chains.map(({ id }) => id));
    const missing = [...this.#runs.values()].filter(({ newest }) => !given.has(newest.run) && newest.at >= this.#since);
    return [
      ...missing.map(({ newest }) => this.#proofOf({ id: newest.run, lines: 0, newest: null })),
      ...chains.map((chain) => this.#proofOf(chain)),
    ];
  }

  #proofOf({ id, lines, newest: last }: Pick<ChainCheck, 'id' | 'lines' | 'newest'>): RunProof {
    const signed = this.#runs.get(id);
    const { proved = null, witnessed = null, newest = null } = signed ?? {};
    const signedTo = proved?.size ?? 0;
    return {
      ...{ run: id, name: newest?.name ?? null, signedTo, signedAt: proved?.at ?? null, unsigned: lines - signedTo },
      ...{ witnessedTo: witnessed?.size ?? 0, witnessedAt: witnessed?.receivedAt ?? null },
      missing: Math.max(0, (signed?.required.size ?? 0) - (last?.sequence ?? 0)),
    };
  }

  /**
   * Returns findings for invalid or contradictory checkpoints, unsigned chains, and missing signed lines. Adds remarks
   * to `notes`.
   * @param areRequired whether missing lines are findings; false for a partial log
   */
  judge(
    chains: readonly Pick<ChainCheck, 'id' | 'newest' | 'isUnderSecret' | 'reported'>[],
    areRequired: boolean,
  ): Finding[] {
    const unsigned = chains.flatMap(({ id, newest, isUnderSecret }): Finding[] => {
      if (isUnderSecret || newest === null || this.#runs.has(id)) return [];
      const message = `the chain ${id} has no signed checkpoint and no secret, so anyone could have forged it`;
      return [{ ...newest.place, kind: 'unsigned', message }];
    });
    const unlike = this.#unproved(chains);
    this.notes.push(...(this.#witnessed?.notes ?? []));
    const { count, first } = this.#apart;
    if (first !== null)
      this.notes.push(
        `the registry received ${counted(count, 'checkpoint')} more than 60 s before or after the time of the signature, because of an outage or a wrong clock; the first was ${first}`,
      );
    if (!areRequired) this.notes.push(...unlike.map(({ message }) => message));
    return [
      ...this.#findings,
      ...unsigned,
      ...(areRequired ? [...unlike, ...this.#missing(chains), ...this.#nextMissing(chains)] : []),
    ];
  }

  /**
   * Returns findings for missing runs (the lines of one gateway process or file). A run is missing if the end
   * checkpoint of a file names it as the continuation, but the input has neither a line nor a checkpoint of it.
   */
  #nextMissing(chains: readonly Pick<ChainCheck, 'id'>[]): Finding[] {
    const given = new Set(chains.map(({ id }) => id));
    return [...this.#runs.values()].flatMap(({ newest }): Finding[] => {
      const { run, next, at, place } = newest;
      if (next === undefined || at < this.#since || this.#runs.has(next) || given.has(next)) return [];
      const message = `the run ${next} (the next log file) is missing: according to the checkpoint of ${timeOf(newest)}, it continues the run ${run}`;
      return [{ ...place, kind: 'missing', message }];
    });
  }

  /**
   * Returns findings for gateway processes whose first lines are missing, so that no Merkle root can be computed. Skips
   * processes that already have a finding.
   */
  #unproved(chains: readonly Pick<ChainCheck, 'id' | 'newest' | 'reported'>[]): Finding[] {
    return chains.flatMap(({ id, newest, reported }): Finding[] => {
      const signed = this.#runs.get(id);
      if (signed === undefined || newest === null || reported > 0 || signed.isUnlike) return [];
      const size = signed.signedUpTo(newest.sequence);
      if ((signed.proved?.size ?? 0) >= size) return [];
      const message = `the given lines of the run ${id} begin with line ${signed.first}, but the signature covers ${rangeText({ from: 1, to: size })}: all of these lines are needed to verify the signature`;
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
    this.#newestAt = Math.max(this.#newestAt, at);
    this.#runs.set(run, signed);
    if (!signed.newest.runKey.bytes.equals(checkpoint.runKey.bytes)) {
      this.#fork(place, `two processes have signed the run ${run}, although a run is the log of one process`);
      return;
    }
    const receivedAt = this.#witnessed && this.#witnessed.keys.receiptTimeOf(parseNote(checkpoint.note));
    const kept = { size, root: root.toString('hex'), at, place, receivedAt };
    if (receivedAt !== null && Math.abs(receivedAt - at) > clockToleranceMilliseconds) {
      this.#apart.count += 1;
      this.#apart.first ??= `signed at ${timeOf(checkpoint)}, received at ${timeOf({ at: receivedAt })}`;
    }
    if (place.file === registryWord)
      this.#knownToRegistry.set(run, Math.max(size, this.#knownToRegistry.get(run) ?? 0));
    else if (receivedAt !== null && this.#witnessed?.isGiven === true) {
      const lost = this.#lostBy(this.#witnessed, run, size);
      if (lost !== null) this.#findings.push({ ...place, ...lost });
    }
    const same = signed.checkpoints.get(size);
    if (same !== undefined && same.root !== kept.root)
      this.#fork(
        place,
        `the signed checkpoints contradict each other about ${rangeText({ from: 1, to: size })} of the run ${run} (log of one process), so the log was rewritten or forked`,
      );
    if (same === undefined) signed.checkpoints.set(size, kept);
    else same.receivedAt ??= receivedAt;
    const isNewer = size > signed.newest.size || (size === signed.newest.size && occasion !== 'periodic');
    if (isNewer) signed.newest = checkpoint;
    if (occasion === 'start') this.#starts.push(checkpoint);
  }

  /**
   * Detects that the registry has removed a checkpoint: it signed a receipt for `size` lines, but now stores no
   * checkpoint that covers them. If the registry's list is given, checkpoints from files do not count as stored.
   */
  #lostBy(witnessed: WitnessedList, run: string, size: number): Mismatch | null {
    const known = (witnessed.isGiven ? this.#knownToRegistry.get(run) : this.#runs.get(run)?.newest.size) ?? 0;
    if (known >= size) return null;
    const newest = witnessed.isGiven ? 'the newest checkpoint that it stores' : 'the newest given checkpoint';
    const message = `the registry signed a receipt for ${size} lines of the run ${run} (log of one process), but ${newest} covers only ${known}`;
    return { kind: 'rewritten', message };
  }

  #fork(place: Position, message: string): void {
    this.#findings.push({ ...place, kind: 'forked', message });
  }
}
