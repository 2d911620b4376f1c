import { writeFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { readOperatorFile } from '../../../config/operator-file.js';
import { OperatorError } from '../../../config/operator-error.js';
import {
  ChainCheck,
  type ChainFinding,
  type ChainHead,
  type ChainNote,
  readChainHead,
} from '../../../evidence/event-chain.js';
import { forPurpose, InvalidNote, type NoteKey, parseKey } from '../../../evidence/signed-note.js';
import { chainPageSchema, chainStateSchema } from '../../../registry/events/schema.js';
import Type, { Check, type Static } from '../../../typebox/typebox.js';
import { type AdminEdge, administer } from '../admin-call.js';
import type { AdminClient } from '../admin-client.js';
import { collect } from '../arguments.js';

interface VerifyOptions {
  readonly checkpoint?: readonly string[];
  readonly publicKey?: string;
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
  added: 'is not in the chain: it was inserted, or a registry of an earlier release wrote it',
  'forged-signature': 'has an invalid signature',
  'unsigned-deletion':
    'is the last of a range of deleted events, and the registry did not sign the deletion. Either somebody removed the events, or the registry deleted them after their retention period. It signs deletions only if registry.witness is set, and not in earlier releases',
  'rolled-back': 'differs from the checkpoint: the database was restored to an earlier state, or the chain was rebuilt',
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
      'checkpoint file that --save wrote earlier and that you keep on another machine (repeatable)',
      collect,
    )
    .option(
      '--public-key <file>',
      `file with the registry's public key, as "merchant-gateway checkpoints head" prints it`,
    )
    .option(
      '--save <file>',
      'write a checkpoint (number and hash of the verified events) to this file; keep the file on another machine',
    );
  administer<VerifyOptions>(command, edge, async ({ client, options, show }) => {
    const { data: state } = await client.ask({ method: 'GET', path: ['events', 'chain'], expects: chainStateSchema });
    const given = options.publicKey === undefined ? null : await readKey(options.publicKey);
    const key = given ?? (state.publicKey === null ? null : keyIn(state.publicKey, 'The response of the registry'));
    const checkpoints = await Promise.all((options.checkpoint ?? []).map((file) => readCheckpoint(file, given)));
    const result = await verifyTrail(client, state, { key, checkpoints, progress: progressOn(edge) });
    const { check, signedTo } = result;
    if (options.save !== undefined) {
      const saved = { ...state.head, note: state.note, publicKey: state.publicKey };
      await writeFile(options.save, `${JSON.stringify(saved)}\n`);
    }
    const isComplete = check.faults === 0;
    const data = {
      ...{ complete: isComplete, faults: check.faults, findings: check.findings, head: state.head },
      ...{ pruned: state.pruned, former: state.former, signedTo },
    };
    const lines = [
      ...check.findings.slice(0, mostLines).map(findingText),
      ...(check.faults > mostLines
        ? [`… and ${check.faults - mostLines} more faults (--json lists up to 1,000).`]
        : []),
      ...summaryOf(state, signedTo, given !== null),
    ];
    if (isComplete) {
      show(data, [`Chain complete: ${state.head.position - state.pruned.position} events.`, ...lines]);
      return;
    }
    show(data, lines);
    const [first] = check.findings;
    const where = first?.seq === null ? `position ${first.position}` : `event ${first?.seq ?? ''}`;
    throw new OperatorError(
      check.faults === 1
        ? `The chain has 1 fault, at ${where}.`
        : `The chain has ${check.faults} faults, the first at ${where}.`,
    );
  });
}

interface VerifyInput {
  readonly key: NoteKey | null;
  readonly checkpoints: readonly ChainHead[];
  readonly progress: (done: number, all: number) => void;
}

/**
 * Reads the hash chain of events page by page, up to the event that was the newest when the command started. Verifies
 * the hashes, the registry's signatures (with `key`), and the saved checkpoints.
 */
async function verifyTrail(
  client: AdminClient,
  { head, pruned, unchained }: Static<typeof chainStateSchema>,
  { key, checkpoints, progress }: VerifyInput,
): Promise<{ readonly check: ChainCheck; readonly signedTo: number }> {
  const check = new ChainCheck({ from: pruned, checkpoints });
  if (pruned.position > 0 && key !== null) {
    const signed = pruned.note === null ? null : readNote(pruned.note, key, 'events/pruned');
    if (!isSame(signed, pruned)) check.reportUnsignedDeletion();
  }
  let signedTo = 0;
  let after: number | null = pruned.position;
  while (after !== null && after < head.position) {
    const page: Static<typeof chainPageSchema> = await readPage(client, after);
    const signed = new Map(page.checkpoints.map(({ position, note }) => [position, note]));
    for (const event of page.events) {
      if (event.position > head.position) break;
      check.add(event);
      const note = signed.get(event.position);
      if (note === undefined || key === null) continue;
      if (!isSame(readNote(note, key), event)) check.reportForgedSignature(event.position);
      signedTo = event.position;
    }
    after = page.next;
    progress(check.head.position - pruned.position, head.position - pruned.position);
  }
  check.end(head);
  if (unchained.firstSeq !== null) check.addUnchained(unchained.firstSeq, unchained.count);
  return { check, signedTo };
}

async function readPage(client: AdminClient, after: number): Promise<Static<typeof chainPageSchema>> {
  const query = { after: String(after) };
  const path = ['events', 'chain', 'rows'];
  return (await client.ask({ method: 'GET', path, query, expects: chainPageSchema })).data;
}

function isSame(signed: ChainHead | null, { position, hash }: ChainHead): boolean {
  return signed?.position === position && signed.hash === hash;
}

function readNote(note: string, key: NoteKey, about?: ChainNote): ChainHead | null {
  try {
    return readChainHead(note, key, about);
  } catch (error) {
    if (error instanceof InvalidNote) return null;
    throw error;
  }
}

function findingText({ fault, position, seq }: ChainFinding): string {
  return `event ${seq ?? `at position ${position}`} ${faults[fault]}`;
}

function summaryOf(
  { head, pruned, former, publicKey }: Static<typeof chainStateSchema>,
  signedTo: number,
  isKeyGiven: boolean,
): string[] {
  const unsigned = head.position - signedTo;
  return [
    ...(pruned.position === 0 ? [] : [`${pruned.position} earlier events were deleted after their retention period.`]),
    ...(former === 0 ? [] : [`${former} events of earlier releases are not in the chain.`]),
    publicKey === null
      ? 'The chain is not signed. Set registry.witness, or use --checkpoint to compare the chain with a checkpoint that --save wrote earlier.'
      : `Events are signed up to position ${signedTo}${unsigned === 0 ? '' : `; the last ${unsigned} are not signed yet`}` +
        (isKeyGiven
          ? '.'
          : '. The public key came from the registry itself. To verify the signatures without trust in the registry, use --public-key with a copy of the key that you stored earlier.'),
  ];
}

function progressOn({ io: { err, isTerminal } }: AdminEdge): VerifyInput['progress'] {
  return (done, all) => {
    if (isTerminal === true) err(`\r${done} of ${all} events verified${done === all ? '\n' : ''}`);
  };
}

async function readText(file: string, what: string): Promise<string> {
  return (await readOperatorFile(file, what, maxFileBytes, () => false)).toString('utf8').trim();
}

async function readKey(file: string): Promise<NoteKey> {
  const text = await readText(file, 'The file of the public key');
  return keyIn(text.split(/\s/)[0] ?? '', `The file ${file}`);
}

function keyIn(text: string, what: string): NoteKey {
  try {
    return forPurpose(parseKey(text), 'note');
  } catch (error) {
    if (!(error instanceof InvalidNote)) throw error;
    throw new OperatorError(`${what} has no public key: ${error.message}.`, { cause: error });
  }
}

async function readCheckpoint(file: string, key: NoteKey | null): Promise<ChainHead> {
  const text = await readText(file, 'The checkpoint');
  let saved: unknown;
  try {
    saved = JSON.parse(text);
  } catch {
    saved = null;
  }
  if (!Check(savedSchema, saved))
    throw new OperatorError(`The file ${file} is not a checkpoint that "merchant-gateway events verify --save" wrote.`);
  const { position, hash, note } = saved;
  if (key !== null) {
    const signed = note === null ? null : readNote(note, key);
    if (!isSame(signed, { position, hash }))
      throw new OperatorError(`The checkpoint ${file} was not signed by the given key.`);
  }
  return { position, hash };
}
