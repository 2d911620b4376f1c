import { type FileHandle, open, unlink } from 'node:fs/promises';
import type { Command } from 'commander';
import { counted } from '../../../audit/finding.js';
import { OperatorError } from '../../../config/operator-error.js';
import { creationProblemOf, fileProblemOf } from '../../../config/operator-file.js';
import { begunExportSchema, eventExportPageSchema, eventSchema } from '../../../registry/events/schema.js';
import Type, { type Static } from '../../../typebox/typebox.js';
import type { CommandIo } from '../../command-io.js';
import { interruptible } from '../../interruption.js';
import { type AdminEdge, administer } from '../admin-call.js';
import type { AdminClient } from '../admin-client.js';
import { ecsLine } from './ecs-line.js';
import { type FilterOptions, filterOptions, filterQuery, sequenceIn } from './filters.js';

type ExportOptions = FilterOptions & { readonly after?: number; readonly output?: string };

/** Schema of a page of events. Allows any action, because a newer registry can have actions unknown to this version. */
const anyPage = Type.Object({
  ...eventExportPageSchema.properties,
  events: Type.Array(
    Type.Object({ ...eventSchema.properties, action: Type.String(), hash: Type.Union([Type.Null(), Type.String()]) }),
  ),
});

/** Creates the command `events export`. */
export function eventsExportCommand(events: Command, edge: AdminEdge): void {
  const command = events
    .command('export')
    .description('print events as JSON lines with ECS field names for a SIEM, oldest first')
    .option('--output <file>', 'create this file (mode 0600) and write the events to it instead of standard output')
    .option(
      '--after <sequence>',
      'start after this sequence number, e.g. the last one of an earlier export',
      sequenceIn,
    );
  administer<ExportOptions>(filterOptions(command), edge, ({ client, options }) =>
    interruptible((signal) => exportEvents(client, options, edge.io, signal)),
  );
}

/** @param signal when aborted, stops the export before the next page is written */
async function exportEvents(
  client: AdminClient,
  options: ExportOptions,
  io: CommandIo,
  signal: AbortSignal,
): Promise<void> {
  const query = filterQuery(options);
  const target = options.output === undefined ? standardOutput(io) : await NewFile.create(options.output);
  let place = options.after ?? 0;
  let isBegun = false;
  try {
    const begun = await beginExport(client, query, place);
    isBegun = true;
    let exported = 0;
    for await (const { events: page, last } of pagesOf(client, begun)) {
      if (signal.aborted) throw new OperatorError('Interrupted.');
      if (page.length > 0) await target.write(`${page.map(ecsLine).join('\n')}\n`);
      exported += page.length;
      place = last;
      if (io.isTerminal === true) io.err(`\r${counted(exported, 'event')} exported`);
    }
    const end = place;
    // `close` syncs the file to disk. If it throws, some lines may be lost, so the user must repeat this export from
    // its start.
    place = options.after ?? 0;
    await target.close();
    const count = counted(exported, 'event');
    const start = io.isTerminal === true ? '\r' : '';
    io.err(
      `${start}${count} exported, up to sequence number ${end}. To export newer events later, use --after ${end}.\n`,
    );
  } catch (error) {
    await target.abandon(isBegun);
    if (!isBegun || !(error instanceof OperatorError)) throw error;
    if (io.isTerminal === true) io.err('\n');
    const next = `The export is incomplete. To export the missing events, use --after ${place}.`;
    throw new OperatorError(`${error.message}\n${next}`, { cause: error });
  }
}

type BegunExport = Static<typeof begunExportSchema>;

async function beginExport(
  client: AdminClient,
  filter: Readonly<Record<string, string | undefined>>,
  after: number,
): Promise<BegunExport> {
  const query = { ...filter, after: String(after) };
  const path = ['events', 'exports'];
  return (await client.ask({ method: 'POST', path, query, isRepeatable: true, expects: begunExportSchema })).data;
}

/**
 * Reads the pages of an export one after another. Yields the events of each page, with the last sequence number that
 * the page covers.
 * @throws OperatorError if the registry sends the same page twice
 */
async function* pagesOf(client: AdminClient, { seq, after }: BegunExport) {
  const path = ['events', 'exports', String(seq)];
  for (let place = after, isLast = false; !isLast;) {
    const query = { after: String(place) };
    const { data } = await client.ask({ method: 'GET', path, query, expects: anyPage });
    isLast = data.next === null;
    const last = data.next ?? seq;
    if (!isLast && last <= place)
      throw new OperatorError(
        'The registry sent the same page twice. Check --registry, and the proxies between this machine and the registry.',
      );
    place = last;
    yield { events: data.events, last };
  }
}

/** The destination of an export: a new file or standard output. */
interface Target {
  write: (text: string) => Promise<void>;
  close: () => Promise<void>;
  /** Closes the target after a failed export. @param keeps whether to keep the text that was written */
  abandon: (keeps: boolean) => Promise<void>;
}

function standardOutput({ out, drained }: CommandIo): Target {
  return {
    write: async (text) => {
      out(text);
      await drained?.();
    },
    close: () => Promise.resolve(),
    abandon: () => Promise.resolve(),
  };
}

/** A new file that contains whole pages only, so that an interrupted export can continue after the last page. */
class NewFile implements Target {
  readonly #file: FileHandle;
  readonly #name: string;
  #size = 0;

  private constructor(file: FileHandle, name: string) {
    this.#file = file;
    this.#name = name;
  }

  /** Creates the file. @throws OperatorError if it exists or cannot be created */
  static async create(name: string): Promise<NewFile> {
    try {
      return new NewFile(await open(name, 'wx', 0o600), name);
    } catch (error) {
      throw new OperatorError(`Cannot create ${name}: ${creationProblemOf(error)}.`, { cause: error });
    }
  }

  async write(text: string): Promise<void> {
    const bytes = Buffer.from(text);
    try {
      await this.#file.appendFile(bytes);
    } catch (error) {
      throw this.#failure(error);
    }
    this.#size += bytes.length;
  }

  async close(): Promise<void> {
    try {
      await this.#file.sync();
      await this.#file.close();
    } catch (error) {
      throw this.#failure(error);
    }
  }

  async abandon(keeps: boolean): Promise<void> {
    await this.#file.truncate(this.#size).catch(() => undefined);
    await this.#file.close().catch(() => undefined);
    if (!keeps) await unlink(this.#name).catch(() => undefined);
  }

  #failure(error: unknown): OperatorError {
    return new OperatorError(`Cannot write to ${this.#name}: ${fileProblemOf(error)}.`, { cause: error });
  }
}
