import { Command } from 'commander';
import type { RunProof, Verdict } from '../../audit/chain-check.js';
import { rangeText } from '../../audit/finding.js';
import { readLogLines, UnreadableLog } from '../../audit/log-lines.js';
import { Verifier } from '../../audit/verifier.js';
import { OperatorError } from '../../config/operator-error.js';
import { collect } from '../admin/arguments.js';
import { printable } from '../admin/printable.js';
import type { CommandIo } from '../command-io.js';
import { timeIn } from './log-options.js';
import { readLogSecrets, type SecretOptions } from './log-secrets.js';
import { checkpointsOption, publicKeyOption, readPublicKeys, readSignedRuns } from './signed-options.js';

interface VerifyOptions extends SecretOptions {
  readonly checkpoints?: readonly string[];
  readonly publicKey?: readonly string[];
  readonly since?: number;
  readonly running?: true;
  readonly partial?: true;
  readonly json?: true;
}

const mostProofLines = 100;
const linesBetweenProgress = 250_000;

const tailText = `A log whose last line is a checkpoint of the end is whole to its end. Where the end is missing, the lines that are
there are proved, and nothing is said of any behind them: a process that still runs (--running), one that was killed and
a log that was cut look the same. Signed checkpoints (accessLog.checkpoints) tell them apart, up to the newest one.
`;

/** `audit verify`. */
export function verifyCommand(io: CommandIo): Command {
  const command = new Command('verify');
  return command
    .description('find every line of a log that was edited, deleted, put elsewhere, inserted or cut off')
    .argument('<file...>', 'in the order of their lines, oldest first; .gz is unpacked, - is standard input')
    .option('--secret-file <file>', "the log's secret; an older one may be named as well", collect)
    .option('--config <file>', 'configuration file that names the secret')
    .addOption(checkpointsOption())
    .addOption(publicKeyOption())
    .option('--since <time>', 'runs whose checkpoints are all older, of deleted files, need not be there', timeIn)
    .option('--running', 'the gateway still writes: that its log, or its last line, has no end yet is no finding')
    .option('--partial', 'the lines are a part of a log: that earlier ones are not there is no finding')
    .option('--json', 'print the verdict as JSON')
    .addHelpText(
      'after',
      `\nExit status: 0 intact, 1 something was found or cannot be read, 2 wrong usage.\n\n${tailText}`,
    )
    .action((files: string[], options: VerifyOptions) => {
      if ((options.checkpoints === undefined) !== (options.publicKey === undefined))
        command.error('error: --checkpoints and --public-key need each other');
      return verify(files, options, io);
    });
}

async function verify(files: readonly string[], options: VerifyOptions, { out, err }: CommandIo): Promise<void> {
  const { running = false, partial = false, json = false, checkpoints, publicKey = [], since = -Infinity } = options;
  const signed =
    checkpoints === undefined ? null : await readSignedRuns(checkpoints, await readPublicKeys(publicKey), since, err);
  const verifier = new Verifier({ secrets: await readLogSecrets(options), running, partial, signed });
  const unreadable = await takeAll(files, verifier, err);
  const verdict = verifier.end(unreadable === null);
  out(json ? `${JSON.stringify(asJson(verdict, unreadable), null, 2)}\n` : asText(verdict, unreadable));
  if (unreadable !== null && verdict.lines === 0) throw unreadable;
  if (unreadable !== null) throw new OperatorError(`${unreadable.message} Before that: ${sizeOf(verdict)}.`);
  if (!verdict.intact) throw new OperatorError(`The log is NOT INTACT: ${sizeOf(verdict)}.`);
}

/** Takes the lines of all files, or of those before one that cannot be read: what was found until then is told all the same. */
async function takeAll(
  files: readonly string[],
  verifier: Verifier,
  err: CommandIo['err'],
): Promise<UnreadableLog | null> {
  let count = 0;
  for (const file of files) {
    const before = count;
    try {
      for await (const lines of readLogLines([file])) {
        for (const line of lines) {
          verifier.take(line);
          count += 1;
          if (count % linesBetweenProgress === 0) err(`${count} lines looked at\n`);
        }
      }
    } catch (error) {
      if (error instanceof UnreadableLog) return error;
      throw error;
    }
    if (count === before) verifier.empty(file);
  }
  return null;
}

function asJson(verdict: Verdict, unreadable: UnreadableLog | null): object {
  const { intact, lines, requests, findingCount, findings, notes, chains, proofs } = verdict;
  return {
    intact: intact && unreadable === null,
    unreadable: unreadable?.message ?? null,
    lines,
    requests,
    findingCount,
    findings,
    notes,
    chains: chains.map(({ id, lines, unchecked, closed, newest, lastCheckpointAt }) => ({
      ...{ id, lines, unchecked, closed, lastCheckpointAt },
      newest: newest && { sequence: newest.sequence, hash: newest.hash, ...newest.place },
    })),
    proofs:
      proofs?.map(({ signedAt, ...proof }) => ({
        ...proof,
        signedAt: signedAt === null ? null : new Date(signedAt).toISOString(),
      })) ?? null,
  };
}

function asText(verdict: Verdict, unreadable: UnreadableLog | null): string {
  const { findingCount, findings, notes, chains, proofs } = verdict;
  const unchecked = chains.reduce((sum, chain) => sum + chain.unchecked, 0);
  const told = [
    ...findings.map(({ file, line, kind, message }) => `${file}:${line}: ${kind}: ${message}`),
    ...(findingCount > findings.length ? [`and ${counted(findingCount - findings.length, 'more finding')}`] : []),
    ...notes.map((note) => `note: ${note}`),
    ...(unchecked > 0
      ? [`note: ${counted(unchecked, 'line')} behind a gap: proved only as what the next line goes on from`]
      : []),
    ...(proofs ?? []).slice(0, mostProofLines).map(proofLine),
    ...(proofs !== null && proofs.length > mostProofLines
      ? [`and ${counted(proofs.length - mostProofLines, 'more run')}: --json has them all`]
      : []),
    ...(verdict.intact && unreadable === null ? [`Intact: ${sizeOf(verdict)}.`] : []),
  ];
  return told.map((line) => `${printable(line)}\n`).join('');
}

function proofLine({ run, name, signedTo, signedAt, unsigned }: RunProof): string {
  if (signedAt === null) return `run ${run}: no line is proved by a signature, ${counted(unsigned, 'line')} under none`;
  const rest = unsigned > 0 ? `; ${counted(unsigned, 'line')} behind them under no signature` : '';
  return `run ${run}: ${rangeText({ from: 1, to: signedTo })} signed by ${name ?? ''} at ${new Date(signedAt).toISOString()}${rest}`;
}

function sizeOf({ lines, requests, chains, findingCount }: Verdict): string {
  return `${counted(lines, 'line')} of ${counted(requests, 'request')}, ${counted(chains.length, 'chain')}, ${counted(findingCount, 'finding')}`;
}

function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`;
}
