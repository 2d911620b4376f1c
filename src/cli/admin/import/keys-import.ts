import type { Command } from 'commander';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { OperatorError } from '../../../config/operator-error.js';
import { fileProblemOf } from '../../../config/operator-file.js';
import type { AdminClient } from '../admin-client.js';
import { administer, type AdminEdge } from '../admin-call.js';
import { WrongUsage } from '../access.js';
import { checkFile, type CheckedFile } from './check-file.js';
import { importLines } from './import-lines.js';
import { Progress } from './progress.js';
import { Spool } from './spool.js';
import { countsText } from './totals.js';
import { untilInterrupted } from './until-interrupted.js';

/** `keys import FILE`. */
export function keysImportCommand(keys: Command, edge: AdminEdge): void {
  const command = keys
    .command('import <file>')
    .description('import keys by their hashes, and merchants, from a file of JSON lines; - is standard input')
    .option('--dry-run', 'check every line, and import nothing');
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
        const already = `${countsText(present)} there already`;
        show({ ...summary, created, present }, [`Every line is good: ${countsText(created)} to import, ${already}.`]);
        return;
      }
      const imported = await importAll(client, spool, lines, progress);
      show({ ...summary, ...imported }, [
        `Imported ${countsText(imported.created)}; ${countsText(imported.present)} there already.`,
      ]);
      if (!imported.projected) throw new OperatorError(notProjected);
    } finally {
      progress.clear();
      await spool.close();
    }
  });
}

const notProjected =
  "Stored, but not yet written to the gateways' store: until it is, gateways do not know these keys. The registry goes on trying.";

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
      progress.show('Checking ', bytes, size, `${lines} lines`);
    },
  });
  progress.clear();
  return checked;
}

async function importAll(client: AdminClient, spool: Spool, lines: number, progress: Progress) {
  const interruption = untilInterrupted();
  try {
    return await importLines({
      client,
      stream: await spool.read(),
      onProgress: (line) => {
        progress.show('Importing', line, lines, `${line} of ${lines} lines`);
      },
      signal: interruption.signal,
    });
  } finally {
    progress.clear();
    interruption.forget();
  }
}

async function openInput(file: string): Promise<{ stream: AsyncIterable<Buffer>; size: number | null }> {
  if (file === '-') return { stream: process.stdin, size: null };
  try {
    const found = await stat(file);
    if (found.isDirectory()) throw new WrongUsage(`${file} is a directory`);
    return { stream: createReadStream(file), size: found.isFile() ? found.size : null };
  } catch (error) {
    if (error instanceof WrongUsage) throw error;
    throw new OperatorError(`The file ${file} cannot be read: ${fileProblemOf(error)}.`, { cause: error });
  }
}

function badLines({ lines, bad, problems }: CheckedFile): OperatorError {
  const told = problems.map(({ line, message }) => `line ${line}: ${message}`);
  const shown = new Set(problems.map(({ line }) => line)).size;
  const more = bad > shown ? [`… and ${bad - shown} more bad lines`] : [];
  const end = `Nothing was imported: of ${lines} lines ${bad} ${bad === 1 ? 'is' : 'are'} bad. Mend them, and run the same command again.`;
  return new OperatorError([...told, ...more, end].join('\n'));
}
