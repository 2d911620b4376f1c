import { type Checkpoint, type ReadCheckpoint, readCheckpoint } from '../evidence/checkpoint.js';
import { MerkleTree } from '../evidence/merkle-tree.js';
import { InvalidNote, type NoteKey } from '../evidence/signed-note.js';
import type { ChainCheck, RunProof } from './chain-check.js';
import { type Finding, type Place, rangeText } from './finding.js';
import type { RawLine } from './log-lines.js';

/** A public key of an instance, and the time for which it counts, in milliseconds since 1970. */
export interface PinnedKey {
  readonly key: NoteKey;
  readonly from: number;
  readonly to: number;
}

/** A checkpoint that was given, and where. */
export interface GivenCheckpoint extends ReadCheckpoint {
  readonly place: Place;
  /** The signed note as it was read. */
  readonly note: string;
}

const noteHead = '{"note":"';

/** Reads a checkpoint that a public key has signed while it counted. @throws InvalidNote */
export function readPinned(note: string, keys: readonly PinnedKey[]): ReadCheckpoint {
  const checkpoint = readCheckpoint(
    note,
    keys.map(({ key }) => key),
  );
  const { name, at } = checkpoint;
  if (keys.some(({ key, from, to }) => key.name === name && from <= at && at <= to)) return checkpoint;
  throw new InvalidNote('the public key that signed it does not count for its time');
}

/**
 * Reads a line of a file of checkpoints.
 * @returns null for an empty line, and for the beginning of one that a killed process left
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

/** How a line differs from what was signed. */
type Unlike = Pick<Finding, 'kind' | 'message'>;

/** What is kept of a checkpoint: there are 8,640 a day of each process. */
interface KeptCheckpoint extends Pick<GivenCheckpoint, 'size' | 'at' | 'place'> {
  /** In hex: a small buffer would keep a part of Node's pool, which is a hundred times as large. */
  readonly root: string;
}

/** What was signed of one run, compared with its lines. */
class SignedRun {
  /** By the number of the last line that they cover. */
  readonly checkpoints = new Map<number, KeptCheckpoint>();
  newest: GivenCheckpoint;
  /** What the process behind it found as its last line, as that has signed. */
  found: { readonly size: number; readonly hash: Buffer; readonly by: GivenCheckpoint } | null = null;
  /** The newest one that the lines agree with. */
  proved: KeptCheckpoint | null = null;
  #tree: MerkleTree | null = new MerkleTree();

  constructor(first: GivenCheckpoint) {
    this.newest = first;
  }

  /** How many lines the run has at least, and who has signed that. */
  get required(): { readonly size: number; readonly by: GivenCheckpoint } {
    const { size } = this.newest;
    return this.found !== null && this.found.size > size ? this.found : { size, by: this.newest };
  }

  /** The last line that the run can have: it has ended, or the next process found this line as the last. And the checkpoint that says so. */
  get last(): { readonly size: number; readonly by: GivenCheckpoint } | null {
    if (this.newest.occasion === 'end') return { size: this.newest.size, by: this.newest };
    return this.found;
  }

  /** Compares the next line. @returns what is wrong; null for nothing */
  compare(sequence: number, hash: string): Unlike | null {
    const { last } = this;
    if (last !== null && sequence > last.size)
      return {
        kind: 'foreign',
        message: `line ${sequence} of its run was added: the run ended with line ${last.size}, as was signed at ${timeOf(last.by)}`,
      };
    const tree = this.#tree;
    if (tree === null) return null;
    this.#tree = null; // behind a line that is missing, changed or too many, nothing can be compared
    if (sequence !== tree.size + 1) return null;
    if (this.found?.size === sequence && this.found.hash.toString('hex') !== hash)
      return {
        kind: 'edited',
        message: `line ${sequence} of its run is not the one that the next process found, as that has signed at ${timeOf(this.found.by)}`,
      };
    tree.append(hash);
    const checkpoint = this.checkpoints.get(sequence);
    if (checkpoint !== undefined && checkpoint.root !== tree.root().toString('hex')) {
      const range = rangeText({ from: (this.proved?.size ?? 0) + 1, to: sequence });
      return { kind: 'edited', message: `${range} of its run: not what was signed at ${timeOf(checkpoint)}` };
    }
    this.proved = checkpoint ?? this.proved;
    this.#tree = tree;
    return null;
  }
}

/** The signed checkpoints of a log, and what they say of its lines. */
export class SignedRuns {
  readonly #findings: Finding[] = [];
  readonly notes: string[] = [];
  readonly #runs = new Map<string, SignedRun>();
  readonly #keys: readonly PinnedKey[];
  readonly #since: number;
  /** The end of a run that a start names, before a checkpoint of that run was read. */
  readonly #starts: GivenCheckpoint[] = [];

  /** @param since runs without a later checkpoint, in milliseconds since 1970, need not be there */
  constructor(keys: readonly PinnedKey[], since: number) {
    this.#keys = keys;
    this.#since = since;
  }

  /** Takes a line of a file of checkpoints. */
  take(line: RawLine): void {
    const place = { file: line.file, line: line.number };
    try {
      const checkpoint = readGivenCheckpoint(line, this.#keys);
      if (checkpoint !== null) this.#add(checkpoint);
      else if (line.bytes?.length !== 0)
        this.notes.push(`${line.file}:${line.number}: an incomplete checkpoint, from a process that was killed`);
    } catch (error) {
      if (!(error instanceof InvalidNote)) throw error;
      this.#findings.push({ ...place, kind: 'unsigned', message: `not a valid checkpoint: ${error.message}` });
    }
  }

  /** To be called when all checkpoints were taken, before the first line of the log. */
  link(): void {
    const followers = new Map<string, GivenCheckpoint>();
    for (const start of this.#starts) {
      const { previous, run, place } = start;
      if (previous === undefined || previous === null) continue;
      const other = followers.get(previous.run);
      if (other !== undefined && other.run !== run)
        this.#fork(place, `two runs go on from the run ${previous.run}: ${other.run} and ${run}`);
      followers.set(previous.run, start);
      const found = this.#runs.get(previous.run);
      if (found !== undefined) found.found = { size: previous.size, hash: previous.hash, by: start };
    }
  }

  /** Compares the next line of a run with what was signed. @returns what is wrong; null for nothing */
  compare(run: string, sequence: number, hash: string): Unlike | null {
    return this.#runs.get(run)?.compare(sequence, hash) ?? null;
  }

  /** How far the lines of a run that are there are proved. */
  proofOf(run: string, lines: number): RunProof {
    const { proved = null, newest = null } = this.#runs.get(run) ?? {};
    const signedTo = proved?.size ?? 0;
    return { run, name: newest?.name ?? null, signedTo, signedAt: proved?.at ?? null, unsigned: lines - signedTo };
  }

  /**
   * Reports invalid checkpoints, chains that nobody has signed, and signed lines that are missing.
   * @param areRequired whether all runs have to be there
   */
  judge(chains: readonly Pick<ChainCheck, 'id' | 'newest' | 'isUnderSecret'>[], areRequired: boolean): Finding[] {
    const unsigned = chains.flatMap(({ id, newest, isUnderSecret }): Finding[] => {
      if (isUnderSecret || newest === null || this.#runs.has(id)) return [];
      const message = `the chain ${id} has no signed checkpoint and no secret: anybody could have made it`;
      return [{ ...newest.place, kind: 'unsigned', message }];
    });
    return [...this.#findings, ...unsigned, ...(areRequired ? this.#missing(chains) : [])];
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
      this.#fork(place, `the run ${run} is signed with two keys of a run: two processes have written it`);
      return;
    }
    const kept = { size, root: root.toString('hex'), at, place };
    const same = signed.checkpoints.get(size);
    if (same !== undefined && same.root !== kept.root)
      this.#fork(place, `${rangeText({ from: 1, to: size })} of the run ${run}: two different forms are signed`);
    if (same === undefined) signed.checkpoints.set(size, kept);
    const isNewer = size > signed.newest.size || (size === signed.newest.size && occasion !== 'periodic');
    if (isNewer) signed.newest = checkpoint;
    if (occasion === 'start') this.#starts.push(checkpoint);
  }

  #fork(place: Place, message: string): void {
    this.#findings.push({ ...place, kind: 'forked', message });
  }
}

function timeOf({ at }: Pick<Checkpoint, 'at'>): string {
  return new Date(at).toISOString();
}
