import { ulid } from 'ulid';
import { NotSignedByRun, type ReadCheckpoint, readCheckpoint, runKeyName } from '../../evidence/checkpoint.js';
import { isConsistent } from '../../evidence/tree-proof.js';
import {
  InvalidNote,
  keyText,
  type NoteKey,
  type NoteSigner,
  parseKey,
  parseNote,
} from '../../evidence/signed-note.js';
import { parseSubmission, type Submission } from '../../evidence/submission.js';
import type { Clock, Logger } from '../../gateway/store-ports.js';
import Type, { Check, type Static } from '../../typebox/typebox.js';
import type { Selectable } from '../../database/kysely.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';
import { CheckpointTimes, clockToleranceMilliseconds } from './checkpoint-times.js';
import { acceptedAt, addEarlier, forgetEarlier } from './earlier.js';
import { type WitnessFindingKind, reportFinding } from './findings.js';
import { keyStateOf, pinFirst } from './instance-keys.js';
import { appendToList, listedStart, lockList, signedHead } from './list.js';

const submissionSchema = Type.Object({
  /** Public key of the instance (gateway) that wrote the log. */
  key: Type.String({ maxLength: 512 }),
  /** The gateway's interval between two checkpoints, in seconds. */
  everySeconds: Type.Integer({ minimum: 1, maximum: 86_400 }),
  /** The checkpoint and its consistency proof in c2sp.org/tlog-witness format. */
  submission: Type.String(),
});

/** A submitted checkpoint. It is a signed state of a run: the part of a log that one process writes to one file. */
type WitnessedSubmission = Readonly<Static<typeof submissionSchema>>;

/** Parses a message from a gateway. @throws InvalidNote */
function readSubmission(body: string): WitnessedSubmission {
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch {
    // `value` stays undefined, and the check below rejects it
  }
  if (Check(submissionSchema, value)) return value;
  throw new InvalidNote('the message is not a JSON object with valid fields key, everySeconds and submission');
}

/** The reply to a gateway that has submitted a checkpoint. */
export interface WitnessVerdict {
  /** Status according to c2sp.org/tlog-witness: 200 with a receipt (proof of acceptance), or an error. */
  readonly status: 200 | 403 | 404 | 409 | 422;
  readonly problem?: string;
  readonly receipt?: string;
  readonly key?: string;
  readonly head?: string;
}

/** Dependencies of Witness. */
export interface WitnessOptions {
  readonly database: RegistryDatabase;
  readonly clock: Clock;
  /** Signs receipts for checkpoints, and the heads of the checkpoint list. */
  readonly signer: NoteSigner;
  readonly logger?: Logger | undefined;
}

type RunRow = Selectable<RegistryTables['runs']> | undefined;

/** Minimum time between two listed periodic checkpoints of a run. Start and end checkpoints are always listed. */
const listMilliseconds = 600_000;

/** Thrown to reject a submission and roll its transaction back. A `finding` that is not null is stored afterwards. */
class Refused extends Error {
  constructor(
    readonly status: Exclude<WitnessVerdict['status'], 200>,
    message: string,
    readonly finding: WitnessFindingKind | null = null,
  ) {
    super(message);
  }
}

/** Signs a receipt for each checkpoint that a valid key signed and that omits no earlier line of the log. */
export class Witness {
  readonly #options: WitnessOptions;
  readonly #times = new CheckpointTimes();

  constructor(options: WitnessOptions) {
    this.#options = options;
  }

  /** Handles a submitted checkpoint and returns the reply. Throws and stores nothing if the database is unavailable. */
  async take(body: string): Promise<WitnessVerdict> {
    let origin = '';
    try {
      const { key, everySeconds, submission } = readSubmission(body);
      const parsed = parseSubmission(submission);
      const instance = parseKey(key);
      const checkpoint = readCheckpoint(parsed.note, [instance]);
      // The database stores the note with all its signatures, so further signatures could make it too long to parse.
      if (parseNote(parsed.note).signatures.length !== 2)
        throw new InvalidNote(
          'the checkpoint must have exactly two signatures: one with the gateway key and one with the run key',
        );
      origin = runKeyName(checkpoint.name, checkpoint.run);
      return await this.#witness(parsed, checkpoint, { instance, origin, everySeconds });
    } catch (error) {
      if (error instanceof NotSignedByRun) await this.#findStolenKey(error);
      if (error instanceof InvalidNote) return { status: 422, problem: error.message };
      if (!(error instanceof Refused)) {
        this.#times.forget(origin);
        throw error;
      }
      if (error.finding !== null) await this.#find(this.#options.database, error.finding, origin, error.message);
      return { status: error.status, problem: error.message };
    }
  }

  /**
   * Reports a checkpoint that only the instance key signed, if the instance key is valid. The key could be stolen: a
   * thief cannot sign with the run key, which exists only in the memory of the gateway's process.
   */
  async #findStolenKey({ message, instance, checkpoint }: NotSignedByRun): Promise<void> {
    const { database, clock } = this.#options;
    if ((await keyStateOf(database, instance, clock.now())) !== 'counts') return;
    await this.#find(database, 'key', runKeyName(checkpoint.name, checkpoint.run), message);
  }

  async #witness(
    submission: Submission,
    checkpoint: ReadCheckpoint,
    { instance, origin, everySeconds }: { instance: NoteKey; origin: string; everySeconds: number },
  ): Promise<WitnessVerdict> {
    const { database, clock, signer } = this.#options;
    return database.transaction().execute(async (transaction): Promise<WitnessVerdict> => {
      await lockList(transaction);
      const runs = transaction.selectFrom('runs').selectAll();
      const known: RunRow = await runs.where('origin', '=', origin).executeTakeFirst();
      const now = clock.now();
      await this.#requirePinned(transaction, instance, checkpoint, now);
      const { text } = parseNote(submission.note);
      const before = await acceptedAt(transaction, text, known);
      // A gateway that got no reply repeats its submission. It then gets the same receipt (proof), and nothing changes.
      if (before !== null) return this.#verdict(transaction, receiptOf(text, before, signer));
      if (known === undefined) requireStart(submission, checkpoint);
      else requireGrowth(known, submission, checkpoint);
      const receipt = receiptOf(text, now, signer);
      const note = submission.note + receipt;
      const isListed =
        checkpoint.occasion !== 'periodic' || known === undefined || now - known.listed_at >= listMilliseconds;
      const wrongTime = this.#times.problemOf(origin, checkpoint, known, now);
      if (wrongTime !== null) await this.#find(transaction, 'clock', origin, wrongTime);
      if (known === undefined) await this.#judgePrevious(transaction, origin, checkpoint);
      const row = {
        ...{ origin, name: checkpoint.name, run_key: keyText(checkpoint.runKey), size: checkpoint.size, note },
        occasion: checkpoint.occasion,
        ...{ signed_at: checkpoint.at, received_at: now, every_seconds: everySeconds, was_missed: 0 },
        listed_at: isListed ? now : known.listed_at,
        next_run: checkpoint.next === undefined ? null : runKeyName(checkpoint.name, checkpoint.next),
      };
      if (known === undefined) {
        const { name, previous = null } = checkpoint;
        const previousRun = previous === null ? null : runKeyName(name, previous.run);
        await transaction
          .insertInto('runs')
          .values({ ...row, began_at: now, previous_run: previousRun })
          .execute();
        // This run (log of a process) continues the previous run, so the previous run must not be reported as silent.
        const ended = transaction.updateTable('runs').set({ was_missed: 1 }).where('occasion', '=', 'end');
        if (previousRun !== null) await ended.where('origin', '=', previousRun).execute();
      } else {
        await addEarlier(transaction, known);
        await transaction.updateTable('runs').set(row).where('origin', '=', origin).execute();
      }
      if (isListed) {
        await appendToList(transaction, now, note);
        await forgetEarlier(transaction, now);
      }
      return this.#verdict(transaction, receipt);
    });
  }

  async #verdict(transaction: RegistryDatabase, receipt: string): Promise<WitnessVerdict> {
    const { signer } = this.#options;
    return { status: 200, receipt, key: keyText(signer.receiptKey), head: await signedHead(transaction, signer) };
  }

  /**
   * Requires that the key is pinned (stored as valid), and is valid now. Pins the first key of an instance name without
   * a check, because only authenticated gateways can send messages here. An administrator should confirm this key.
   */
  async #requirePinned(
    transaction: RegistryDatabase,
    instance: NoteKey,
    { name, at }: ReadCheckpoint,
    now: number,
  ): Promise<void> {
    const state = await keyStateOf(transaction, instance, now);
    if (state === 'counts') return;
    if (state === 'other')
      throw new Refused(
        403,
        `another key is pinned (trusted) for ${name}: if the key has changed, run "merchant-gateway instance-keys pin" with the new key`,
        'key',
      );
    const whatToDo = 'see "merchant-gateway instance-keys list"; give the gateway another key, and pin that key';
    if (state === 'ended') throw new Refused(403, `the key of ${name} is not valid at this time: ${whatToDo}`, 'key');
    await pinFirst(transaction, instance, { now, from: Math.min(at, now) });
    this.#options.logger?.warn(
      { name, publicKey: keyText(instance) },
      'the registry trusts the first signing key of a gateway, but nobody has checked it: compare it with the output of "merchant-gateway audit public-key" on that gateway, then run "merchant-gateway instance-keys confirm"',
    );
  }

  /**
   * Compares a new run's statement about its previous run with the stored runs. Reports signs of a cut or forked log:
   * - the previous run is not stored, although other runs of this instance are stored;
   * - the stored previous run has more lines than stated, or a later time than the new run's checkpoint;
   * - another run already continues the previous run, which signed no further lines after that other run began.
   */
  async #judgePrevious(transaction: RegistryDatabase, origin: string, checkpoint: ReadCheckpoint): Promise<void> {
    const { name, previous = null, at } = checkpoint;
    if (previous === null) return;
    const former = runKeyName(name, previous.run);
    const runs = transaction.selectFrom('runs').select(['size', 'signed_at']);
    const known = await runs.where('origin', '=', former).executeTakeFirst();
    if (known === undefined) {
      const ofName = transaction.selectFrom('runs').select('origin').where('name', '=', name);
      const isNew = (await ofName.limit(1).executeTakeFirst()) === undefined;
      const message = `the log run continues the run ${previous.run}, but no checkpoint of that run was received`;
      if (!isNew) await this.#find(transaction, 'previous', origin, message);
      return;
    }
    if (known.size > previous.size) {
      const message = `the log run ${previous.run} ended with line ${previous.size}, but its first ${known.size} lines were signed: lines were removed`;
      await this.#find(transaction, 'cut', origin, message);
    }
    if (at < known.signed_at - clockToleranceMilliseconds) {
      const message = `the checkpoint is dated ${new Date(at).toISOString()}, earlier than the last checkpoint of the previous log run ${previous.run}`;
      await this.#find(transaction, 'clock', origin, message);
    }
    const others = transaction.selectFrom('runs').select(['origin', 'began_at']).where('previous_run', '=', former);
    for (const other of await others.execute()) {
      const start = await listedStart(transaction, other);
      // If the previous run signed lines after `other` had started, this is no fork: two processes wrote to one file.
      if (start !== null && known.size > start.previousSize && known.signed_at > start.at) continue;
      const fork = `the log run and another run, ${other.origin}, both continue the run ${previous.run}`;
      await this.#find(transaction, 'fork', origin, fork);
      return;
    }
  }

  async #find(database: RegistryDatabase, kind: WitnessFindingKind, origin: string, message: string): Promise<void> {
    const now = this.#options.clock.now();
    await reportFinding(database, { id: ulid(now), found_at: now, kind, origin, message });
    this.#options.logger?.error(
      { kind, run: origin, problem: message },
      'new problem in the access log of a gateway: see "merchant-gateway checkpoints findings"',
    );
  }
}

function requireStart({ oldSize, proof }: Submission, { occasion }: ReadCheckpoint): void {
  if (occasion !== 'start')
    throw new Refused(404, 'the registry does not know the log run: it has no start checkpoint of the run', 'unknown');
  if (oldSize !== 0 || proof.length > 0)
    throw new Refused(409, 'the submission of the first checkpoint of a run must have "old 0" and no proof');
}

function requireGrowth(known: NonNullable<RunRow>, { oldSize, proof }: Submission, checkpoint: ReadCheckpoint): void {
  if (known.run_key !== keyText(checkpoint.runKey))
    throw new Refused(422, 'two processes write this run of the log: its checkpoints have different run keys', 'fork');
  if (checkpoint.size < known.size || oldSize !== known.size)
    throw new Refused(
      409,
      `the checkpoint does not continue the newest known checkpoint, which covers the first ${known.size} lines of the run`,
      checkpoint.size < known.size ? 'replay' : 'fork',
    );
  // Rejects an older checkpoint of equal size, which an attacker could replay to make a killed process seem alive.
  if (checkpoint.size === known.size && checkpoint.at < known.signed_at)
    throw new Refused(409, `a later checkpoint of the same ${known.size} lines was already received`, 'replay');
  if (known.occasion === 'end') throw new Refused(409, `the run has already ended, with line ${known.size}`, 'fork');
  const older = readOlder(known);
  if (!isConsistent(older, checkpoint, proof))
    throw new Refused(422, `the first ${known.size} lines of the run differ from the signed lines`, 'fork');
}

function readOlder({ note, size }: NonNullable<RunRow>): { readonly size: number; readonly root: Buffer } {
  const [, , root = ''] = note.split('\n');
  return { size, root: Buffer.from(root, 'base64') };
}

/** Creates a receipt (proof of acceptance). Ed25519 is deterministic: a repeated submission gets an equal receipt. */
function receiptOf(text: string, receivedAt: number, signer: NoteSigner): string {
  return signer.receiptFor(text, Math.floor(receivedAt / 1000));
}
