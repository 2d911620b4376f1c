import { Command } from 'commander';
import { counted } from '../../audit/finding.js';
import { checkProof, findLine, type FoundLine, LineProver } from '../../audit/line-prover.js';
import { readLogLines } from '../../audit/log-lines.js';
import { readGivenCheckpoint } from '../../audit/pinned-keys.js';
import type { GivenCheckpoint } from '../../audit/signed-run.js';
import { WitnessKeys } from '../../audit/witnessed-list.js';
import { OperatorError } from '../../config/operator-error.js';
import { readOperatorFile } from '../../config/operator-file.js';
import { parseProof, proofText } from '../../evidence/line-proof.js';
import { InvalidNote, parseNote } from '../../evidence/signed-note.js';
import { printable, printableJson } from '../admin/printable.js';
import type { CommandIo } from '../command-io.js';
import { registryOptions } from './registry-checkpoints.js';
import {
  checkpointsOption,
  type GivenCheckpoints,
  openGivenCheckpoints,
  publicKeyOption,
  readPublicKeys,
  readWitnessKeys,
  type SignedOptions,
  usageProblem,
  witnessKeyOption,
} from './signed-options.js';

interface ProveOptions extends SignedOptions {
  readonly id: string;
  readonly json?: true;
}

interface CheckOptions {
  readonly publicKey: readonly string[];
  readonly witnessKey?: readonly string[];
  readonly json?: true;
}

const maxProofBytes = 2 * 1024 * 1024;

/** Creates the command `audit prove`. */
export function proveCommand(io: CommandIo): Command {
  const command = new Command('prove');
  return registryOptions(command)
    .description('print a proof that a line is in the log; to verify the proof, neither the log nor a secret is needed')
    .argument('<file...>', 'files of the log in order, oldest first; .gz files are decompressed')
    .requiredOption('--id <id>', 'event.id of the line, or x-request-id of the response')
    .addOption(checkpointsOption().makeOptionMandatory())
    .addOption(publicKeyOption())
    .option('--config <file>', 'configuration file with the address of the registry and its token file')
    .option('--json', 'print JSON: the proof as text, the id of the log run, and the position of the line')
    .addHelpText(
      'after',
      '\nThe proof (c2sp.org/tlog-proof) contains the proved line, and only hashes of the other lines. Example:\n  audit prove --id 01KAG0M8W2T5Y4RZ3D7N9C1B6E --checkpoints checkpoints.jsonl --public-key keys.txt access.log > proof\n  audit check-proof --public-key keys.txt proof',
    )
    .action((files: string[], options: ProveOptions) => {
      const problem = usageProblem(options);
      if (problem !== null) command.error(`error: ${problem}`);
      return prove(files, options, io);
    });
}

/** Creates the command `audit check-proof`. */
export function checkProofCommand(io: CommandIo): Command {
  return new Command('check-proof')
    .description('verify the proof of a log line, with public keys only, and print that line')
    .argument('<file>', 'file with the proof that "merchant-gateway audit prove" printed')
    .addOption(publicKeyOption().makeOptionMandatory())
    .addOption(witnessKeyOption())
    .option('--json', 'print only JSON')
    .addHelpText('after', '\nExit status: 0 the proof holds, 1 it does not hold or cannot be read, 2 wrong usage.')
    .action((file: string, options: CheckOptions) => check(file, options, io));
}

async function prove(files: readonly string[], options: ProveOptions, { out, err }: CommandIo): Promise<void> {
  // The log is read twice: first to find the line, and again to build its Merkle path.
  if (files.includes('-'))
    throw new OperatorError('The log is read twice, which standard input does not allow: name the files of the log.');
  const given = await openGivenCheckpoints(options, err);
  const { keys } = given;
  const line = await findOne(files, options.id);
  const checkpoint = await covering(line, given);
  const prover = new LineProver(line, checkpoint);
  for await (const lines of readLogLines(files)) for (const each of lines) prover.take(each);
  const proof = prover.proof();
  if (proof === null)
    throw new OperatorError(
      `The proof needs all lines of the log run ${line.run} up to line ${checkpoint.size}, but some are missing: name all files of the run.`,
    );
  try {
    checkProof(proof, keys, given.witnessed?.keys);
  } catch (error) {
    if (!(error instanceof InvalidNote)) throw error;
    throw new OperatorError(
      `The line cannot be proved: ${error.message}. Run "merchant-gateway audit verify" to examine the log.`,
      {
        cause: error,
      },
    );
  }
  const text = proofText(proof);
  const { run, sequence, file, number } = line;
  out(options.json === true ? `${printableJson({ run, sequence, file, line: number, proof: text })}\n` : text);
}

async function findOne(files: readonly string[], id: string): Promise<FoundLine> {
  const found: FoundLine[] = [];
  for await (const lines of readLogLines(files)) {
    for (const each of lines) {
      const line = findLine(each, id);
      if (line !== null) found.push(line);
    }
  }
  const [line, other] = found;
  if (line === undefined)
    throw new OperatorError(
      `No line of the given files has the id ${printable(id)}. Check the id, and whether the log has more files.`,
    );
  if (other !== undefined)
    throw new OperatorError(
      `Several lines have this id, e.g. ${line.file}:${line.number} and ${other.file}:${other.number}: pass the event.id of one line.`,
    );
  return line;
}

/**
 * Returns the best checkpoint that covers the line. A checkpoint with a receipt (the registry's signature) is better,
 * because the receipt states when the registry received the checkpoint. If this does not decide, the checkpoint that
 * covers the fewest lines is best, because its proof needs the fewest lines.
 * @throws OperatorError if no valid checkpoint covers the line
 */
async function covering({ run, sequence }: FoundLine, given: GivenCheckpoints): Promise<GivenCheckpoint> {
  const witness = given.witnessed?.keys ?? null;
  const hasReceipt = ({ note }: GivenCheckpoint): boolean => (witness?.receiptTimeOf(parseNote(note)) ?? null) !== null;
  const isBetter = (one: GivenCheckpoint, other: GivenCheckpoint): boolean =>
    hasReceipt(one) === hasReceipt(other) ? one.size < other.size : hasReceipt(one);
  let [best, refused]: [GivenCheckpoint | null, string | null] = [null, null];
  for await (const lines of given.lines()) {
    for (const each of lines) {
      // Verifying a signature takes time, so skip the checkpoints of other runs (logs of other gateway processes).
      if (each.bytes?.includes(run) !== true) continue;
      try {
        const checkpoint = readGivenCheckpoint(each, given.keys, witness);
        if (checkpoint?.run !== run || checkpoint.size < sequence) continue;
        if (best === null || isBetter(checkpoint, best)) best = checkpoint;
      } catch (error) {
        if (!(error instanceof InvalidNote)) throw error;
        refused = error.message;
      }
    }
  }
  if (best !== null) return best;
  const why =
    refused === null
      ? 'If the line is new, try again after the next checkpoint. Otherwise give more checkpoints with --checkpoints.'
      : `A checkpoint of the run was rejected: ${refused}.`;
  throw new OperatorError(`No signed checkpoint covers line ${sequence} of the log run ${run}. ${why}`);
}

async function check(file: string, { publicKey, witnessKey, json }: CheckOptions, { out }: CommandIo): Promise<void> {
  const keys = await readPublicKeys(publicKey);
  const witness = witnessKey === undefined ? null : new WitnessKeys(await readWitnessKeys(witnessKey));
  const text = (await readOperatorFile(file, 'The proof', maxProofBytes)).toString('utf8');
  try {
    const proof = parseProof(text);
    const { name, run, size, at } = checkProof(proof, keys, witness);
    const receivedAt = witness === null ? null : witness.receiptTimeOf(parseNote(proof.note));
    if (receivedAt === null && witnessKey !== undefined)
      throw new InvalidNote('the checkpoint has no receipt that a key in --witness-key verifies');
    const received = receivedAt === null ? null : new Date(receivedAt).toISOString();
    const line = proof.line.toString('utf8');
    const signedAt = new Date(at).toISOString();
    if (json === true)
      out(
        `${printableJson({ name, run, sequence: proof.index + 1, size, signedAt, receivedAt: received, line: JSON.parse(line) as unknown })}\n`,
      );
    else
      out(
        `${printable(line)}\nProved: this is line ${proof.index + 1} of the log run ${run}. ${name} signed the first ${counted(size, 'line')} of the run at ${signedAt}${received === null ? '' : `, and the registry received the checkpoint at ${received}`}.\n`,
      );
  } catch (error) {
    if (!(error instanceof InvalidNote)) throw error;
    throw new OperatorError(`The proof does NOT HOLD: ${error.message}.`, { cause: error });
  }
}
