import { randomBytes } from 'node:crypto';
import { realpath, rename, rm, stat, writeFile } from 'node:fs/promises';
import { type Command, InvalidArgumentError } from 'commander';
import { counted } from '../../../audit/finding.js';
import { creationProblemOf, readOperatorFile } from '../../../config/operator-file.js';
import { OperatorError } from '../../../config/operator-error.js';
import { ChainCheck, type ChainFinding, type ChainHead, headSignatureOf } from '../../../evidence/event-chain.js';
import { forPurpose, InvalidNote, type NoteKey, parseKey } from '../../../evidence/signed-note.js';
import { chainPageSchema, chainStateSchema } from '../../../registry/events/schema.js';
import Type, { Check, type Static } from '../../../typebox/typebox.js';
import { type AdminEdge, administer } from '../admin-call.js';
import type { AdminClient } from '../admin-client.js';
import { parseJson } from '../admin-response.js';
import { collect } from '../arguments.js';

type ChainState = Static<typeof chainStateSchema>;
type ChainPage = Static<typeof chainPageSchema>;

interface VerifyOptions {
  readonly checkpoint?: readonly string[];
  readonly publicKey?: readonly string[];
  readonly added?: number;
  readonly save?: string;
}

/** A checkpoint (position and hash of the newest event) as `events verify --save` writes it. */
const savedSchema = Type.Object({
  position: Type.Integer({ minimum: 0 }),
  hash: Type.String({ pattern: '^[0-9a-f]{64}$' }),
  note: Type.Union([Type.Null(), Type.String()]),
  publicKey: Type.Union([Type.Null(), Type.String()]),
});

const maxFileBytes = 64 * 1024;
const mostLines = 20;

const faults: Readonly<Record<ChainFinding['fault'], string>> = {
  changed: 'was changed',
  removed: 'is missing',
  reordered: 'was moved to another position',
  added: 'is the first event outside the chain: it was inserted, or an earlier release of the registry wrote it',
  'added-removed':
    'is the last event of the chain. Fewer events are outside the chain than --added states: somebody deleted some of them, or the registry deleted some after their retention period',
  'forged-signature': 'has an invalid signature',
  'unsigned-deletion':
    'is the last of a range of deleted events, and no known key signed the deletion. The known keys are those that you gave with --public-key or, without this option, the current key of the registry. Either somebody removed the events, or the registry deleted them after their retention period, and signed with another key or not at all. It does not sign deletions if registry.witness is not set, or if it is an earlier release',
  'rolled-back': 'does not match a checkpoint: the database was restored to an earlier state, or the chain was rebuilt',
};

/** Creates the command `events verify`. */
export function eventsVerifyCommand(events: Command, edge: AdminEdge): void {
  const command = events
    .command('verify')
    .description(
      'detect whether events were changed, removed, inserted or reordered, and whether the database was restored to an earlier state',
    )
    .option<readonly string[]>(
      '--checkpoint <file>',
      'compare the chain with this checkpoint, which --save wrote to a file earlier; keep the file on another machine (repeatable)',
      collect,
    )
    .option<readonly string[]>(
      '--public-key <file>',
      `file with the registry's current and former public keys, one per line, as "merchant-gateway checkpoints head" prints them (repeatable)`,
      collect,
    )
    .option<number>(
      '--added <number>',
      'number of events outside the chain that you have examined and accept, e.g. those that a registry of an earlier release wrote; if the command finds more or fewer, it reports a fault (default: 0)',
      numberIn,
    )
    .option(
      '--save <file>',
      'if the command finds no fault, write a checkpoint (position and hash of the last verified event) to this file; keep the file on another machine',
    );
  administer<VerifyOptions>(command, edge, async ({ client, options, show }) => {
    const state = await readState(client);
    const given = options.publicKey && (await Promise.all(options.publicKey.map(readKeys))).flat();
    const ofRegistry = state.publicKey === null ? [] : [keyIn(state.publicKey, 'The response of the registry')];
    const keys = given ?? ofRegistry;
    const checkpoints = await Promise.all((options.checkpoint ?? []).map((file) => readCheckpoint(file, given)));
    const { added = 0 } = options;
    const result = await verifyTrail(client, state, { keys, checkpoints, added, progress: progressOn(edge) });
    const { check, pruned, ...signatures } = result;
    const isComplete = check.faults === 0;
    const data = {
      ...{ complete: isComplete, faults: check.faults, findings: check.findings, head: state.head },
      ...{ pruned, former: state.former, added: state.unchained.count, ...signatures },
    };
    const lines = [
      ...check.findings.slice(0, mostLines).map(findingText),
      ...(check.faults > mostLines
        ? [`… and ${counted(check.faults - mostLines, 'more fault')} (--json lists up to 1,000).`]
        : []),
      ...summaryOf({ ...state, pruned }, signatures, given !== undefined),
    ];
    if (isComplete) {
      const verified = Math.max(0, state.head.position - pruned.position);
      show(data, [`Chain complete: ${counted(verified, 'event')}.`, ...lines]);
      if (options.save !== undefined) await saveCheckpoint(options.save, state);
      return;
    }
    show(data, lines);
    const [first] = check.findings;
    const where = first?.seq === null ? `position ${first.position}` : `event ${first?.seq ?? ''}`;
    const faultsText = check.faults === 1 ? `1 fault, at ${where}` : `${check.faults} faults, the first at ${where}`;
    const unsaved = options.save === undefined ? '' : ' No checkpoint was saved.';
    throw new OperatorError(`The chain has ${faultsText}.${unsaved}`);
  });
}

interface VerifyInput {
  /** The keys that verify signatures. If there are none, signatures are ignored. */
  readonly keys: readonly NoteKey[];
  readonly checkpoints: readonly ChainHead[];
  /** The number of events outside the chain that the user has examined and accepts. */
  readonly added: number;
  readonly progress: (done: number, all: number) => void;
}

/** How far the registry's signatures prove the chain. */
interface TrailSignatures {
  /** The position of the last event that a known key signed; 0 if there is none. */
  readonly signedTo: number;
  /** The number of signatures by unknown keys. They prove nothing. */
  readonly unknownSignatures: number;
}

/**
 * Reads the hash chain of events page by page, up to the event that was the newest when the command started. Verifies
 * the hashes, the saved checkpoints and the registry's signatures.
 * @returns `pruned` is the last event that was deleted after its retention period, before or during the command
 */
async function verifyTrail(
  client: AdminClient,
  { head, pruned, unchained }: ChainState,
  { keys, checkpoints, added, progress }: VerifyInput,
): Promise<TrailSignatures & { readonly check: ChainCheck; readonly pruned: ChainState['pruned'] }> {
  const check = new ChainCheck({ from: pruned, checkpoints });
  let [signedTo, unknownSignatures] = [0, 0];
  const checkDeletion = (deleted: ChainState['pruned']): void => {
    if (deleted.position === 0 || keys.length === 0) return;
    const signature = headSignatureOf(deleted.note ?? '', deleted, keys, 'events/pruned');
    // Anyone could sign a deletion with another key. So an unknown key does not excuse missing events.
    if (signature !== 'signed') check.reportUnsignedDeletion();
    if (signature === 'unknown-key') unknownSignatures += 1;
  };
  checkDeletion(pruned);
  let after: number | null = pruned.position;
  while (after !== null && after < head.position) {
    const page: ChainPage = await readPage(client, after);
    if (hasGap(page, after)) {
      // Since the last page was read, the registry may have deleted the missing events after their retention period.
      const present = (await readState(client)).pruned;
      if (present.position > after) {
        check.continueAfter(present);
        checkDeletion(present);
        pruned = present;
        after = present.position;
        continue;
      }
    }
    const signed = new Map(page.checkpoints.map(({ position, note }) => [position, note]));
    for (const event of page.events) {
      if (event.position > head.position) break;
      check.add(event);
      const note = signed.get(event.position);
      if (note === undefined || keys.length === 0) continue;
      const signature = headSignatureOf(note, event, keys);
      if (signature === 'signed') signedTo = event.position;
      else if (signature === 'unknown-key') unknownSignatures += 1;
      else check.reportForgedSignature(event.position);
    }
    after = page.next;
    progress(check.head.position - pruned.position, head.position - pruned.position);
  }
  check.end(head);
  check.addUnchained(unchained.firstSeq, unchained.count, added);
  return { check, pruned, signedTo, unknownSignatures };
}

/** Whether an event is missing between the position `after` and the end of the page. */
function hasGap({ events }: ChainPage, after: number): boolean {
  return events.length === 0 || events.some(({ position }, index) => position !== after + 1 + index);
}

async function readState(client: AdminClient): Promise<ChainState> {
  return (await client.ask({ method: 'GET', path: ['events', 'chain'], expects: chainStateSchema })).data;
}

async function readPage(client: AdminClient, after: number): Promise<ChainPage> {
  const query = { after: String(after) };
  const path = ['events', 'chain', 'rows'];
  return (await client.ask({ method: 'GET', path, query, expects: chainPageSchema })).data;
}

function findingText({ fault, position, seq }: ChainFinding): string {
  return `event ${seq ?? `at position ${position}`} ${faults[fault]}`;
}

function summaryOf(
  { head, pruned, former, unchained, publicKey }: ChainState,
  { signedTo, unknownSignatures }: TrailSignatures,
  isKeyGiven: boolean,
): string[] {
  const unsigned = head.position - signedTo;
  const byWhom = unknownSignatures === 0 ? 'yet' : 'by a known key';
  const unverified = `Recorded before the chain existed, and therefore not verified: ${counted(former, 'event')}.`;
  return [
    ...(pruned.position === 0 ? [] : [`Deleted after their retention period: ${counted(pruned.position, 'event')}.`]),
    ...(unchained.count === 0
      ? []
      : [
          `Events outside the chain: ${unchained.count}. The option --added ${unchained.count} states that you have examined and accept all of them.`,
        ]),
    ...(former === 0 ? [] : [unverified]),
    publicKey === null
      ? 'The chain is not signed, because registry.witness is not set. Without signatures, only --checkpoint with an earlier checkpoint detects a rebuilt chain.'
      : `Signatures cover the events up to position ${signedTo}${unsigned === 0 ? '' : `; ${counted(unsigned, 'later event')} ${unsigned === 1 ? 'is' : 'are'} not signed ${byWhom}`}` +
        (isKeyGiven
          ? '.'
          : '. The public key came from the registry itself. To verify the signatures without trust in the registry, use --public-key with a copy of the key that you stored earlier.'),
    ...(unknownSignatures === 0
      ? []
      : [
          `Signatures by an unknown key, which prove nothing: ${unknownSignatures}. If the registry's key was replaced, give its former key and its current key with --public-key.`,
        ]),
  ];
}

function numberIn(value: string): number {
  if (/^(?:0|[1-9][0-9]{0,8})$/.test(value)) return Number(value);
  throw new InvalidArgumentError('Expected the number of events outside the chain, as this command prints it.');
}

function progressOn({ io: { err, isTerminal } }: AdminEdge): VerifyInput['progress'] {
  return (done, all) => {
    if (isTerminal === true) err(`\r${done} of ${counted(all, 'event')} verified${done === all ? '\n' : ''}`);
  };
}

async function readText(file: string, what: string): Promise<string> {
  return (await readOperatorFile(file, what, maxFileBytes, () => false)).toString('utf8').trim();
}

async function readKeys(file: string): Promise<NoteKey[]> {
  const text = await readText(file, 'The file of public keys');
  const keys = [...text.matchAll(/^[ \t]*([^\s#]\S*)/gm)].map(([, key = '']) => key);
  return (keys.length === 0 ? [''] : keys).map((key) => keyIn(key, `The file ${file}`));
}

function keyIn(text: string, what: string): NoteKey {
  try {
    return forPurpose(parseKey(text), 'note');
  } catch (error) {
    if (!(error instanceof InvalidNote)) throw error;
    throw new OperatorError(
      `${what} has ${text === '' ? 'no public key: add a key that "merchant-gateway checkpoints head" prints' : `an invalid public key: ${error.message}`}.`,
      { cause: error },
    );
  }
}

async function readCheckpoint(file: string, keys: readonly NoteKey[] | undefined): Promise<ChainHead> {
  const saved = parseJson(await readText(file, 'The checkpoint'));
  if (!Check(savedSchema, saved))
    throw new OperatorError(`The file ${file} is not a checkpoint that "merchant-gateway events verify --save" wrote.`);
  const { position, hash, note } = saved;
  if (keys !== undefined && note === null)
    throw new OperatorError(
      `The checkpoint ${file} has no signature, because registry.witness was not set when it was saved. To compare the chain with this unsigned checkpoint, omit --public-key.`,
    );
  if (keys !== undefined && headSignatureOf(note ?? '', { position, hash }, keys) !== 'signed')
    throw new OperatorError(
      `No key of --public-key signed the checkpoint ${file}. If the registry's key was replaced, add its former key with another --public-key. Otherwise do not trust the file.`,
    );
  return { position, hash };
}

/**
 * Writes a checkpoint file, completely or not at all. A failure must not destroy the previous checkpoint.
 * @throws OperatorError
 */
async function saveCheckpoint(file: string, state: ChainState): Promise<void> {
  const { head, note, publicKey } = state;
  const existing = await stat(file).catch(() => null);
  if (existing?.isFile() === false) throw new OperatorError(`${file} is not a regular file. No checkpoint was saved.`);
  const target = existing === null ? file : await realpath(file);
  const draft = `${target}.${randomBytes(6).toString('hex')}.tmp`;
  try {
    await writeFile(draft, `${JSON.stringify({ ...head, note, publicKey })}\n`, { flag: 'wx', flush: true });
    await rename(draft, target);
  } catch (error) {
    await rm(draft, { force: true }).catch(() => undefined);
    throw new OperatorError(`The checkpoint ${file} cannot be written: ${creationProblemOf(error)}.`, { cause: error });
  }
}
