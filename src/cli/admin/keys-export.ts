import { Option, type Command } from 'commander';
import { OperatorError } from '../../config/operator-error.js';
import Type, { type Static } from '../../typebox/typebox.js';
import type { AdminAnswer } from './admin-answer.js';
import { administer, type AdminEdge } from './admin-call.js';
import { idIn } from './arguments.js';

/** Of a later registry an entry may hold more than is known here. */
const page = Type.Object({
  entries: Type.Array(Type.Object({})),
  next: Type.Union([Type.Null(), Type.String()]),
  revision: Type.Integer(),
});

interface ExportOptions {
  readonly merchant?: string;
  readonly environment?: string;
}

/** `keys export`. */
export function keysExportCommand(keys: Command, { io, env }: AdminEdge): void {
  const command = keys
    .command('export')
    .description('print merchants and keys as JSON lines for keys import: keys by their hashes, no key itself')
    .option('--merchant <id>', 'this merchant and its keys alone')
    .addOption(new Option('--environment <name>', 'the keys of this one alone').choices(['live', 'test']));
  administer<ExportOptions>(command, { io, env }, async ({ client, options }) => {
    const { merchant, environment } = options;
    const filter = { merchantId: merchant === undefined ? undefined : idIn(merchant, 'merchant'), environment };
    let after: string | undefined;
    let until: string | undefined;
    let isEmpty = true;
    try {
      do {
        const { data }: AdminAnswer<Static<typeof page>> = await client.ask({
          ...({ method: 'GET', path: ['exports'], expects: page } as const),
          query: { ...filter, after, until },
        });
        // JSON escapes what moves a cursor, but for the second set of control characters, which nothing stored has.
        isEmpty &&= data.entries.length === 0;
        if (data.entries.length > 0) io.out(`${data.entries.map((entry) => JSON.stringify(entry)).join('\n')}\n`);
        await io.drained?.();
        after = data.next ?? undefined;
        until ??= String(data.revision);
      } while (after !== undefined);
      if (isEmpty) io.err('There is no merchant or key to export.\n');
    } catch (error) {
      if (!(error instanceof OperatorError) || until === undefined) throw error;
      throw new OperatorError(`${error.message}\nWhat was printed is not complete: export again.`, { cause: error });
    }
  });
}
