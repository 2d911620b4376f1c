import { Command } from 'commander';
import type { RunProof, Verdict } from '../../audit/chain-check.js';
import { counted, rangeText } from '../../audit/finding.js';
import { readLogLines, UnreadableLog } from '../../audit/log-lines.js';
import { Verifier } from '../../audit/verifier.js';
import { loadConfig } from '../../config/load.js';
import { OperatorError } from '../../config/operator-error.js';
import { collect } from '../admin/arguments.js';
import { printable } from '../admin/printable.js';
import type { CommandIo } from '../command-io.js';
import { timeIn } from './log-options.js';
import { readLogSecrets, type SecretOptions } from './log-secrets.js';
import { registryOptions } from './registry-checkpoints.js';
import {
  checkpointsOption,
  headOption,
  openGivenCheckpoints,
  publicKeyOption,
  readLaterCheckpoints,
  readSignedRuns,
  type SignedOptions,
  usageProblem,
  witnessKeyOption,
} from './signed-options.js';

interface VerifyOptions extends ProofOptions {
  readonly since?: number;
  readonly json?: true;
}

const mostProofLines = 100;
const linesBetweenProgress = 250_000;

const tailText = `A log is complete if its last line is an end checkpoint. Otherwise, this command verifies only the given lines: it
cannot detect whether later lines were removed, or whether the gateway was killed or is still running. If the gateway is still
running, use --running. With signed checkpoints (accessLog.checkpoints), the command detects missing lines up to the newest
checkpoint.
`;

/** Creates the command `audit verify`. */
export function verifyCommand(io: CommandIo): Command {
  const command = new Command('verify');
  command
    .description('find lines of a log that were edited, deleted, moved, inserted or truncated')
    .argument(
      '<file...>',
      'files of the log in order, oldest first; .gz files are decompressed, "-" means standard input',
    )
    .option('--config <file>', 'configuration file that names the secret file (accessLog.secretFile)')
    .option(
      '--since <time>',
      'do not report that a log run is missing or lacks its last lines, if the newest checkpoint of the run is older than this time. A run is the part of a log that one process wrote into one file',
      timeIn,
    );
  return proofOptions(command)
    .option('--json', 'print the verdict as JSON')
    .addHelpText('after', `\nExit status: 0 intact, 1 findings or unreadable files, 2 wrong usage.\n\n${tailText}`)
    .action((files: string[], options: VerifyOptions) => {
      requireUsable(command, options);
      return verify(files, options, io);
    });
}

/** Options with which `audit verify` and `audit summary` verify a log. */
export interface ProofOptions extends SecretOptions, SignedOptions {
  readonly running?: true;
  readonly asOf?: number;
  readonly partial?: true;
}

/** Adds the options in `ProofOptions` to a command, except `--config`, which each command adds itself. */
export function proofOptions(command: Command): Command {
  return registryOptions(command)
    .option(
      '--secret-file <file>',
      'file with the secret of the log (repeatable, e.g. to add an earlier secret)',
      collect,
    )
    .addOption(checkpointsOption())
    .addOption(publicKeyOption())
    .addOption(witnessKeyOption())
    .addOption(headOption())
    .option(
      '--running',
      'the gateway is still writing: accept a log without an end checkpoint, and an incomplete last line',
    )
    .option('--as-of <time>', 'with --running: when the log was copied (default: now)', timeIn)
    .option('--partial', 'the lines are a part of a log: accept missing earlier lines');
}

/** Reports a usage error if an option is given without another option that it needs. */
export function requireUsable(command: Command, options: ProofOptions): void {
  const problem =
    options.asOf !== undefined && options.running !== true ? '--as-of needs --running' : usageProblem(options);
  if (problem !== null) command.error(`error: ${problem}`);
}

/** A verifier of a log, and what remains to be done after the last line. */
export interface OpenVerifier {
  readonly verifier: Verifier;
  /**
   * Ends the verification. If the log refers to checkpoints that are not known yet, first reads the checkpoints that
   * were stored while the log was read. If that fails, adds a note to the verdict and uses only the known checkpoints.
   * @param areAll false if a file could not be read to its end
   */
  readonly end: (areAll: boolean) => Promise<Verdict>;
}

/**
 * Creates the verifier of a log. A log run that is missing or lacks its last lines is reported only if its newest
 * checkpoint is at or after `since`. A run is the part of a log that one process wrote into one file.
 * @param since in milliseconds since 1970
 * @throws OperatorError
 */
export async function openVerifier(options: ProofOptions, since: number, err: CommandIo['err']): Promise<OpenVerifier> {
  const { running = false, partial = false, checkpoints, asOf = Date.now() } = options;
  const given = checkpoints === undefined ? null : await openGivenCheckpoints(options, err);
  const signed = given && (await readSignedRuns(given, since, err));
  const config = loadConfig({ file: options.config });
  const signsCheckpoints = config.accessLog.checkpoints !== null;
  const secrets = await readLogSecrets(options, config);
  const verifier = new Verifier({ secrets, running, partial, signed, signsCheckpoints, asOf });
  const end = async (areAll: boolean): Promise<Verdict> => {
    try {
      if (signed !== null && given !== null) await readLaterCheckpoints(signed, given);
    } catch (error) {
      if (!(error instanceof OperatorError)) throw error;
      signed?.notes.push(
        `the checkpoints could not be read again after the log was read. Findings about lines or checkpoints that were written during the verification may be wrong. Reason: ${error.message}`,
      );
    }
    return verifier.end(areAll);
  };
  return { verifier, end };
}

async function verify(files: readonly string[], options: VerifyOptions, { out, err }: CommandIo): Promise<void> {
  const { json = false, since = -Infinity } = options;
  const { verifier, end } = await openVerifier(options, since, err);
  const unreadable = await takeAll(files, verifier, err);
  const verdict = await end(unreadable === null);
  out(json ? `${JSON.stringify(verdictJson(verdict, unreadable), null, 2)}\n` : asText(verdict, unreadable));
  if (unreadable !== null && verdict.lines === 0) throw unreadable;
  if (unreadable !== null)
    throw new OperatorError(`${unreadable.message} Read before the failure: ${sizeOf(verdict)}.`);
  if (!verdict.intact) throw new OperatorError(`The log is NOT INTACT: ${sizeOf(verdict)}.`);
}

/**
 * Passes the lines of all files to the verifier. Stops at an unreadable file and returns its error, so that the command
 * can report the findings in the lines that were read.
 */
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
          if (count % linesBetweenProgress === 0) err(`${count} lines checked\n`);
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

/**
 * Converts a verdict to JSON.
 * @param unreadable the error of a file that could not be read to its end; null if all files were read
 */
export function verdictJson(verdict: Verdict, unreadable: UnreadableLog | null): object {
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
      proofs?.map(({ signedAt, witnessedAt, ...proof }) => ({
        ...proof,
        signedAt: signedAt === null ? null : new Date(signedAt).toISOString(),
        witnessedAt: witnessedAt === null ? null : new Date(witnessedAt).toISOString(),
      })) ?? null,
  };
}

function asText(verdict: Verdict, unreadable: UnreadableLog | null): string {
  const { findingCount, findings, notes, chains, proofs } = verdict;
  const unchecked = chains.reduce((sum, chain) => sum + chain.unchecked, 0);
  const lines = [
    ...findings.map(({ file, line, kind, message }) => `${file}:${line}: ${kind}: ${message}`),
    ...(findingCount > findings.length ? [`and ${counted(findingCount - findings.length, 'more finding')}`] : []),
    ...notes.map((note) => `note: ${note}`),
    ...(unchecked > 0
      ? [
          `note: ${counted(unchecked, 'line')} could not be verified, because the previous line or the secret is missing`,
        ]
      : []),
    ...(proofs ?? []).slice(0, mostProofLines).map(proofLine),
    ...(proofs !== null && proofs.length > mostProofLines
      ? [`and ${counted(proofs.length - mostProofLines, 'more log run')}: --json lists all`]
      : []),
    ...(verdict.intact && unreadable === null ? [`Intact: ${sizeOf(verdict)}.`] : []),
  ];
  return lines.map((line) => `${printable(line)}\n`).join('');
}

function proofLine({ run, name, signedTo, signedAt, unsigned, missing, ...proof }: RunProof): string {
  const { witnessedTo, witnessedAt } = proof;
  const lost = missing > 0 ? `; missing: ${counted(missing, 'signed line')}` : '';
  if (signedAt === null)
    return `log run ${run}: the input has ${counted(unsigned, 'unsigned line')} and no signed line of this run${lost}`;
  const rest = `${unsigned > 0 ? `; then ${counted(unsigned, 'unsigned line')}` : ''}${lost}`;
  const receipt =
    witnessedAt === null
      ? ''
      : `, ${rangeText({ from: 1, to: witnessedTo })} covered by a receipt of the registry, dated ${new Date(witnessedAt).toISOString()}`;
  return `log run ${run}: ${rangeText({ from: 1, to: signedTo })} signed by ${name ?? ''} at ${new Date(signedAt).toISOString()}${receipt}${rest}`;
}

function sizeOf({ lines, requests, chains, findingCount }: Verdict): string {
  return `${counted(lines, 'line')} of ${counted(requests, 'request')}, ${counted(chains.length, 'chain')}, ${counted(findingCount, 'finding')}`;
}
