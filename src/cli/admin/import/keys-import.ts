import { open } from 'node:fs/promises';
import type { Command } from 'commander';
import { counted } from '../../../audit/finding.js';
import { OperatorError } from '../../../config/operator-error.js';
import { fileProblemOf } from '../../../config/operator-file.js';
import type { CommandIo } from '../../command-io.js';
import { interruptible } from '../../interruption.js';
import { type AdminEdge, administer } from '../admin-call.js';
import type { AdminClient } from '../admin-client.js';
import { WrongUsage } from '../peer.js';
import { type CheckedFile, checkFile } from './check-file.js';
import { importLines } from './import-lines.js';
import { Spool } from './spool.js';
import { countsText } from './totals.js';

/** Creates the command `keys import FILE`. */
export function keysImportCommand(keys: Command, edge: AdminEdge): void {
  const command = keys
    .command('import <file>')
    .description('import merchants and hashes of keys from a file of JSON lines, or from standard input if <file> is -')
    .option('--dry-run', 'check every line without importing');
  administer<{ readonly dryRun?: true }>(command, edge, async ({ client, options, args, show }) => {
    const progress = new Progress(edge.io);
    const spool = await Spool.open();
    try {
      const { stream, size } = await openInput(args[0] ?? '');
      const checked = await checkAll(client, stream, size, spool, progress);
      const { lines, bad, problems, created, present } = checked;
      const summary = { dryRun: options.dryRun === true, lines, bad, problems };
      const nothing = { merchants: 0, keys: 0 };
      if (bad > 0) {
        show({ ...summary, created: nothing, present }, []);
        throw badLines(checked);
      }
      if (options.dryRun === true) {
        const already = `${countsText(present)} already present`;
        show({ ...summary, created, present }, [`All lines are valid: ${countsText(created)} to import, ${already}.`]);
        return;
      }
      const imported = await importAll(client, spool, lines, progress);
      show({ ...summary, ...imported }, [
        `Imported ${countsText(imported.created)}; ${countsText(imported.present)} already present.`,
      ]);
      if (!imported.projected) throw new OperatorError(notProjected);
    } finally {
      progress.clear();
      await spool.close();
    }
  });
}

const notProjected =
  "The keys are stored in the database, but not yet in the gateways' key store. Gateways reject these keys until the registry has written them there. The registry keeps trying. If the database has failed over or was restored meanwhile, it may have lost keys: repeat the import, which does not change keys that are already present.";

async function checkAll(
  client: AdminClient,
  stream: AsyncIterable<Buffer>,
  size: number | null,
  spool: Spool,
  progress: Progress,
): Promise<CheckedFile> {
  const checked = await checkFile({
    client,
    stream,
    keep: (line) => spool.add(line),
    onProgress: (lines, bytes) => {
      progress.show('Checking ', bytes, size, counted(lines, 'line'));
    },
  });
  progress.clear();
  return checked;
}

/** Imports the checked lines. If a signal interrupts the import, the error names the last imported line. */
function importAll(client: AdminClient, spool: Spool, lines: number, progress: Progress) {
  return interruptible(async (signal) => {
    try {
      return await importLines({
        client,
        stream: await spool.read(),
        onProgress: (line) => {
          progress.show('Importing', line, lines, `${line} of ${counted(lines, 'line')}`);
        },
        signal,
      });
    } finally {
      progress.clear();
    }
  });
}

async function openInput(file: string): Promise<{ stream: AsyncIterable<Buffer>; size: number | null }> {
  if (file === '-') return { stream: process.stdin, size: null };
  const handle = await open(file).catch((error: unknown) => {
    throw new OperatorError(`The file ${file} cannot be read: ${fileProblemOf(error)}.`, { cause: error });
  });
  const found = await handle.stat();
  if (!found.isDirectory()) return { stream: handle.createReadStream(), size: found.isFile() ? found.size : null };
  await handle.close();
  throw new WrongUsage(`${file} is a directory`);
}

function badLines({ lines, bad, problems }: CheckedFile): OperatorError {
  const messages = problems.map(({ line, message }) => `line ${line}: ${message}`);
  const shown = new Set(problems.map(({ line }) => line)).size;
  const more = bad > shown ? [`… and ${counted(bad - shown, 'more invalid line')}`] : [];
  const end =
    `Nothing was imported: ${bad} of ${counted(lines, 'line')} ${bad === 1 ? 'is' : 'are'} invalid. ` +
    'Correct the file and run the same command again.';
  return new OperatorError([...messages, ...more, end].join('\n'));
}

const width = 30;
const pauseMilliseconds = 100;
const eraseLine = '\r\u001b[K';

/** A progress bar on one terminal line. Prints nothing if standard error is not a terminal. */
class Progress {
  readonly #io: CommandIo;
  #shownAt = -Infinity;

  constructor(io: CommandIo) {
    this.#io = io;
  }

  /**
   * Redraws the bar, at most ten times a second.
   * @param total null if unknown, as for standard input
   */
  show(what: string, done: number, total: number | null, detail: string): void {
    const now = performance.now();
    if (this.#io.isTerminal !== true || now - this.#shownAt < pauseMilliseconds) return;
    this.#shownAt = now;
    const share = total === null ? null : total === 0 ? 1 : Math.min(done / total, 1);
    const bar = share === null ? '' : ` [${'='.repeat(Math.round(share * width)).padEnd(width)}] ${percent(share)}`;
    this.#io.err(`${eraseLine}${what}${bar} ${detail}`);
  }

  /** Erases the bar, so that other text can be printed. */
  clear(): void {
    if (this.#shownAt === -Infinity) return;
    this.#shownAt = -Infinity;
    this.#io.err(eraseLine);
  }
}

function percent(share: number): string {
  return `${String(Math.floor(share * 100)).padStart(3)} %`;
}
