import { InvalidNote, isSignedBy, parseNote } from '../evidence/signed-note.js';
import type { ChainCheck, RunProof } from './chain-check.js';
import { counted, type Finding, type Position, rangeText } from './finding.js';
import { clockToleranceMilliseconds, type PinnedKey, readGivenCheckpoint, readPinned } from './pinned-keys.js';
import type { Checkpoint as LineCheckpoint } from './sealed-line.js';
import type { RawLine } from './log-lines.js';
import { type GivenCheckpoint, missingIn, SignedRun, timeOf, type Mismatch } from './signed-run.js';
import { WitnessedClaims, type WitnessedList } from './witnessed-list.js';

/**
 * The value of `--checkpoints` that stands for the checkpoints of the registry. It is also the file name in findings
 * (reported defects) about these checkpoints.
 */
export const registryWord = 'registry';

/** Compares the lines of a log with signed checkpoints. A run is the lines of one gateway process in one file. */
export class SignedRuns {
  readonly #findings: Finding[] = [];
  readonly notes: string[] = [];
  readonly #runs = new Map<string, SignedRun>();
  /** The run of the last compared line, cached because most lines belong to the same run as the line before. */
  #compared: { readonly id: string; readonly signed: SignedRun | undefined } = { id: '', signed: undefined };
  readonly #keys: readonly PinnedKey[];
  readonly #since: number;
  readonly #witnessed: WitnessedList | null;
  readonly #claims: WitnessedClaims | null;
  readonly #fetchedAt: number;
  #hasUnknownRun = false;
  /** The runs that began after the checkpoints were fetched. */
  readonly #laterRuns = new Set<string>();
  #newestAt = -Infinity;
  /** Checkpoints that were signed over 60 s before or after they reached the registry: how many, and the first one. */
  readonly #apart = { count: 0, first: null as string | null };
  /**
   * The start checkpoints of all gateway processes. A start checkpoint states the last line of the previous process.
   * `link` evaluates start checkpoints last, because checkpoints of the previous process can come later in the input.
   */
  readonly #starts: GivenCheckpoint[] = [];

  /**
   * @param since in milliseconds since 1970. The loss of the last (or all) signed lines of a run is reported only if
   *   the newest checkpoint of that run is not older than this time.
   * @param witnessed the registry's public keys, and its list of checkpoints if given. Null: the registry's receipts
   *   (its signatures under checkpoints) are ignored.
   * @param fetchedAt when the checkpoints were fetched, in milliseconds since 1970
   */
  constructor(keys: readonly PinnedKey[], since: number, witnessed: WitnessedList | null = null, fetchedAt = Infinity) {
    [this.#keys, this.#since, this.#witnessed, this.#fetchedAt] = [keys, since, witnessed, fetchedAt];
    this.#claims = witnessed && new WitnessedClaims(witnessed);
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

  /** Whether the log has receipts or runs that the given checkpoints lack, perhaps because the log is newer. */
  get isBehind(): boolean {
    return this.#hasUnknownRun || this.#claims?.arePending === true;
  }

  /**
   * Reads one line of the checkpoints that were fetched again after the log was read. This second fetch proves nothing:
   * it only shows which receipts and runs in the log are newer than the first fetch, whose lines `take` read.
   */
  takeLater(line: RawLine): void {
    try {
      const checkpoint = readGivenCheckpoint(line, this.#keys, this.#witnessed?.keys ?? null);
      if (checkpoint === null) return;
      const { run, size, occasion, at, place } = checkpoint;
      if (this.#isKnowledge(place)) this.#claims?.know(run, size);
      // Use the time that the gateway signed: the registry could hide an old run at first, and show it as new here.
      if (occasion === 'start' && at >= this.#fetchedAt - clockToleranceMilliseconds) this.#laterRuns.add(run);
    } catch (error) {
      if (!(error instanceof InvalidNote)) throw error;
    }
  }

  /** Whether a checkpoint counts as stored by the registry. If the registry's list is not given, every one counts. */
  #isKnowledge({ file }: Position): boolean {
    return file === registryWord || this.#witnessed?.isGiven === false;
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
      const found = this.#runs.get(previous.run);
      const isOfAnother = found !== undefined && !this.#isOneInstance(found.newest, start);
      // Two processes wrote to one file. The earlier run went on, so `start` does not state where that run ended.
      if (!isOfAnother && found?.wentOnAfter(start, previous.size) === true) continue;
      const other = followers.get(previous.run);
      if (other !== undefined && other.run !== run)
        this.#fork(
          place,
          `the log runs ${other.run} and ${run} both claim to follow the run ${previous.run}: two processes wrote to one log, the log was copied, or one run is forged`,
        );
      followers.set(previous.run, start);
      // A thief of one gateway's key could forge a start checkpoint that names a run of another gateway. A forged
      // checkpoint must not decide where the log of that other gateway ended.
      if (isOfAnother)
        this.#fork(
          place,
          `the log run ${run} of ${start.name} claims to follow the run ${previous.run}, which belongs to another gateway, ${found.newest.name}`,
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
   * Compares the next line of a gateway process with the signed checkpoints of this process.
   * @returns how the line differs; null if it matches
   */
  compare(run: string, sequence: number, hash: string): Mismatch | null {
    if (run !== this.#compared.id) {
      this.#compared = { id: run, signed: this.#runs.get(run) };
      this.#hasUnknownRun ||= this.#compared.signed === undefined;
    }
    return this.#compared.signed?.compare(sequence, hash) ?? null;
  }

  /**
   * Compares a checkpoint line of the log with the registry's list of checkpoints. The line can contain a receipt,
   * whose time is stored, and a list head: the length and the Merkle root of the list, as signed by the registry.
   * @returns the defect that was found; null if nothing contradicts the line, or if `judge` reports the defect later
   */
  compareWitnessed({ note, head }: Pick<LineCheckpoint, 'note' | 'head'>, place: Position): Mismatch | null {
    if (this.#witnessed === null || this.#claims === null) return null;
    if (note === undefined) return this.#claims.compare({ head }, place);
    try {
      const { run, size, root } = readPinned(note, this.#keys, this.#witnessed.keys);
      const receivedAt = this.#witnessed.keys.receiptTimeOf(parseNote(note));
      if (receivedAt === null) return this.#claims.compare({ head }, place);
      this.#runs.get(run)?.receive(size, root.toString('hex'), receivedAt);
      return this.#claims.compare({ head, receipt: { run, size } }, place);
    } catch (error) {
      if (!(error instanceof InvalidNote)) throw error;
      const invalid = `the checkpoint in this line is invalid: ${error.message}`;
      return this.#claims.compare({ head }, place) ?? { kind: 'unsigned', message: invalid };
    }
  }

  /** Whether a checkpoint of this run (the lines of one process in one file) was given. */
  has(run: string): boolean {
    return this.#runs.has(run);
  }

  /** The time of the newest checkpoint, in milliseconds since 1970; -Infinity without a checkpoint. */
  get newestAt(): number {
    return this.#newestAt;
  }

  /**
   * Returns how far signatures and receipts cover the lines of each gateway process. Includes processes whose lines are
   * all missing, unless their newest checkpoint is older than `since`.
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
   * @param areRequired whether missing lines are findings; false for a log that is partial or was not read to its end
   */
  judge(
    chains: readonly Pick<ChainCheck, 'id' | 'newest' | 'isUnderSecret' | 'lacksSecret' | 'reported'>[],
    areRequired: boolean,
  ): Finding[] {
    const rewritten = this.#claims?.findings() ?? [];
    const unsigned = chains.flatMap(({ id, newest, isUnderSecret, lacksSecret }): Finding[] => {
      if (isUnderSecret || newest === null || this.#runs.has(id)) return [];
      if (!lacksSecret && this.#laterRuns.has(id)) {
        this.notes.push(
          `the log run ${id} began after the checkpoints were fetched, so its lines were not compared with checkpoints: verify the log again later`,
        );
        return [];
      }
      const message = lacksSecret
        ? `the chain ${id} is hashed with a secret that was not given, so its lines may be forged: to verify them, name the secret file with --secret-file or --config`
        : `the chain ${id} has no signed checkpoint and no secret, so anyone could have forged it`;
      return [{ ...newest.place, kind: 'unsigned', message }];
    });
    const unlike = this.#unproved(chains);
    this.notes.push(...(this.#witnessed?.notes ?? []));
    const { count, first } = this.#apart;
    if (first !== null)
      this.notes.push(
        `${counted(count, 'checkpoint')} reached the registry more than 60 s before or after the time of the signature, because of an outage or a wrong clock; the first was ${first}`,
      );
    if (!areRequired) this.notes.push(...unlike.map(({ message }) => message));
    return [
      ...this.#findings,
      ...rewritten,
      ...unsigned,
      ...(areRequired ? [...unlike, ...missingIn(chains, this.#runs, this.#since)] : []),
    ];
  }

  /**
   * Returns findings for gateway processes whose first lines are missing, so no Merkle root can be computed. Skips
   * processes that already have a finding.
   */
  #unproved(chains: readonly Pick<ChainCheck, 'id' | 'newest' | 'reported'>[]): Finding[] {
    return chains.flatMap(({ id, newest, reported }): Finding[] => {
      const signed = this.#runs.get(id);
      if (signed === undefined || newest === null || reported > 0 || signed.isUnlike) return [];
      const size = signed.signedUpTo(newest.sequence);
      if ((signed.proved?.size ?? 0) >= size) return [];
      const message = `the signature of the log run ${id} cannot be verified: it covers ${rangeText({ from: 1, to: size })}, but the given lines begin with line ${signed.first}; add the earlier log files`;
      return [{ ...newest.place, kind: 'unsigned', message }];
    });
  }

  #add(checkpoint: GivenCheckpoint): void {
    const { run, size, root, at, place, occasion } = checkpoint;
    const signed = this.#runs.get(run) ?? new SignedRun(checkpoint);
    this.#newestAt = Math.max(this.#newestAt, at);
    this.#runs.set(run, signed);
    if (!signed.newest.runKey.bytes.equals(checkpoint.runKey.bytes)) {
      this.#fork(place, `two processes have signed the log run ${run}, although only one process writes a run`);
      return;
    }
    const receivedAt = this.#witnessed && this.#witnessed.keys.receiptTimeOf(parseNote(checkpoint.note));
    const kept = { size, root: root.toString('hex'), at, place, receivedAt };
    if (receivedAt !== null && Math.abs(receivedAt - at) > clockToleranceMilliseconds) {
      this.#apart.count += 1;
      this.#apart.first ??= `signed at ${timeOf(checkpoint)}, received at ${timeOf({ at: receivedAt })}`;
    }
    if (this.#isKnowledge(place)) this.#claims?.know(run, size);
    else if (receivedAt !== null) {
      const lost = this.#claims?.compare({ receipt: { run, size } }, place) ?? null;
      if (lost !== null) this.#findings.push({ ...place, ...lost });
    }
    const same = signed.checkpoints.get(size);
    if (same !== undefined && same.root !== kept.root)
      this.#fork(
        place,
        `the signed checkpoints contradict each other about ${rangeText({ from: 1, to: size })} of the log run ${run}, so the log was rewritten or forked`,
      );
    if (same === undefined) signed.checkpoints.set(size, kept);
    else same.receivedAt ??= receivedAt;
    const isNewer = size > signed.newest.size || (size === signed.newest.size && occasion !== 'periodic');
    if (isNewer) signed.newest = checkpoint;
    if (occasion === 'start') this.#starts.push(checkpoint);
  }

  #fork(place: Position, message: string): void {
    this.#findings.push({ ...place, kind: 'forked', message });
  }
}
