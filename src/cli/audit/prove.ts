import { Command } from 'commander';
import { checkProof, findLine, type FoundLine, LineProver } from '../../audit/line-prover.js';
import { readLogLines } from '../../audit/log-lines.js';
import { type GivenCheckpoint, type PinnedKey, readGivenCheckpoint } from '../../audit/signed-runs.js';
import { OperatorError } from '../../config/operator-error.js';
import { readOperatorFile } from '../../config/operator-file.js';
import { parseProof, proofText } from '../../evidence/line-proof.js';
import { InvalidNote } from '../../evidence/signed-note.js';
import { printable, printableJson } from '../admin/printable.js';
import type { CommandIo } from '../command-io.js';
import { checkpointsOption, publicKeyOption, readPublicKeys } from './signed-options.js';

interface ProveOptions {
  readonly id: string;
  readonly checkpoints: readonly string[];
  readonly publicKey: readonly string[];
  readonly json?: true;
}

const maxProofBytes = 2 * 1024 * 1024;

/** `audit prove`. */
export function proveCommand(io: CommandIo): Command {
  return new Command('prove')
    .description('print a proof that one line stands in the log, for somebody who has neither the log nor a secret')
    .argument('<file...>', 'files of the log, in the order of their lines; .gz is unpacked')
    .requiredOption('--id <id>', 'the line: its event.id, or the x-request-id of the response')
    .addOption(checkpointsOption().makeOptionMandatory())
    .addOption(publicKeyOption().makeOptionMandatory())
    .option('--json', 'print JSON: the proof as a text, the run, and where the line stands')
    .addHelpText(
      'after',
      '\nThe proof (c2sp.org/tlog-proof) has that line alone, and of the others nothing but hashes:\n' +
        '  audit prove --id 01KAG0M8W2T5Y4RZ3D7N9C1B6E --checkpoints checkpoints.jsonl --public-key keys.txt access.log > proof\n' +
        '  audit check-proof --public-key keys.txt proof',
    )
    .action((files: string[], options: ProveOptions) => prove(files, options, io));
}

/** `audit check-proof`. */
export function checkProofCommand(io: CommandIo): Command {
  return new Command('check-proof')
    .description('check the proof of one line with public keys alone, and print the line')
    .argument('<file>', 'what audit prove printed')
    .addOption(publicKeyOption().makeOptionMandatory())
    .option('--json', 'print JSON, and nothing else')
    .addHelpText('after', '\nExit status: 0 the proof holds, 1 it does not or cannot be read, 2 wrong usage.')
    .action((file: string, options: { readonly publicKey: readonly string[]; readonly json?: true }) =>
      check(file, options, io),
    );
}

async function prove(files: readonly string[], options: ProveOptions, { out }: CommandIo): Promise<void> {
  // The files are read twice: for the line, and for its path.
  if (files.includes('-')) throw new OperatorError('The log is read twice: name its files, not standard input.');
  const keys = await readPublicKeys(options.publicKey);
  const line = await findOne(files, options.id);
  const checkpoint = await covering(line, options.checkpoints, keys);
  const prover = new LineProver(line, checkpoint);
  for await (const lines of readLogLines(files)) for (const each of lines) prover.take(each);
  const proof = prover.proof();
  if (proof === null)
    throw new OperatorError(
      `Lines of the run ${line.run} up to line ${checkpoint.size}, which the proof needs, are not in the files: name all files of the run.`,
    );
  try {
    checkProof(proof, keys);
  } catch (error) {
    if (!(error instanceof InvalidNote)) throw error;
    throw new OperatorError(`The line cannot be proved: ${error.message}. See audit verify.`, { cause: error });
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
  if (line === undefined) throw new OperatorError(`No line of the log has the id ${printable(id)}.`);
  if (other !== undefined)
    throw new OperatorError(
      `Several lines have this id, such as ${line.file}:${line.number} and ${other.file}:${other.number}: name the event.id of one.`,
    );
  return line;
}

/** The first checkpoint of the line's run that covers it: it needs the fewest lines. */
async function covering(
  { run, sequence }: FoundLine,
  files: readonly string[],
  keys: readonly PinnedKey[],
): Promise<GivenCheckpoint> {
  let [first, refused]: [GivenCheckpoint | null, string | null] = [null, null];
  for await (const lines of readLogLines(files)) {
    for (const each of lines) {
      // Only those of the run are worth checking their signatures.
      if (each.bytes?.includes(run) !== true) continue;
      try {
        const checkpoint = readGivenCheckpoint(each, keys);
        if (checkpoint?.run !== run || checkpoint.size < sequence) continue;
        if (first === null || checkpoint.size < first.size) first = checkpoint;
      } catch (error) {
        if (!(error instanceof InvalidNote)) throw error;
        refused = error.message;
      }
    }
  }
  if (first !== null) return first;
  const why = refused === null ? '' : ` One was left out: ${refused}.`;
  throw new OperatorError(`No checkpoint covers line ${sequence} of the run ${run}.${why}`);
}

async function check(
  file: string,
  { publicKey, json }: { readonly publicKey: readonly string[]; readonly json?: true },
  { out }: CommandIo,
): Promise<void> {
  const keys = await readPublicKeys(publicKey);
  const text = (await readOperatorFile(file, 'The proof', maxProofBytes)).toString('utf8');
  try {
    const proof = parseProof(text);
    const { name, run, size, at } = checkProof(proof, keys);
    const line = proof.line.toString('utf8');
    const signedAt = new Date(at).toISOString();
    if (json === true)
      out(
        `${printableJson({ name, run, sequence: proof.index + 1, size, signedAt, line: JSON.parse(line) as unknown })}\n`,
      );
    else
      out(
        `${printable(line)}\nProved: it is line ${proof.index + 1} of the run ${run}, of which ${name} signed ${size} at ${signedAt}.\n`,
      );
  } catch (error) {
    if (!(error instanceof InvalidNote)) throw error;
    throw new OperatorError(`The proof does NOT HOLD: ${error.message}.`, { cause: error });
  }
}
