import { Command, Option } from 'commander';
import { OperatorError } from '../../config/operator-error.js';
import { type ApiKey, apiKeySchema, resetKeySchema, shownKeySchema } from '../../registry/keys/schema.js';
import { propagationSchema } from '../../registry/propagation-schema.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { fingerprintCommand } from '../audit/fingerprint.js';
import type { CommandIo } from '../command-io.js';
import type { AdminAnswer } from './admin-answer.js';
import { type AdminEdge, administer } from './admin-call.js';
import { collect, idIn, pageLine, pageOptions, type PageOptions, pageQuery, secondsIn, spanIn } from './arguments.js';
import { keysImportCommand } from './import/keys-import.js';
import type { Environment } from './peer.js';
import { tableLines } from './table.js';

const propagation = propagationSchema;
const changedKey = Type.Object({ ...apiKeySchema.properties, propagation });
const createdKey = Type.Object({ ...shownKeySchema.properties, propagation });
const replacedKey = Type.Object({ ...resetKeySchema.properties, propagation });

interface CreateOptions {
  readonly merchant: string;
  readonly environment: string;
  readonly permission?: readonly string[];
  readonly expiresIn?: string;
  readonly label?: string;
}

/** `keys create`, `list`, `revoke`, `reset`, `import`, `export` and `fingerprint`. */
export function keysCommand(io: CommandIo, env: Environment = process.env): Command {
  const keys = new Command('keys').description('create, list, revoke, reset, import and export the keys of merchants');
  const edge = { io, env };

  const create = keys.command('create').description('create a key, which is shown once');
  create
    .requiredOption('--merchant <id>', 'whose key it is')
    .addOption(new Option('--environment <name>', 'where it is valid').choices(['live', 'test']).makeOptionMandatory())
    .option<readonly string[]>(
      '--permission <permission>',
      'such as payouts:write; may be repeated; or else *',
      collect,
    )
    .option('--expires-in <span>', 'ends after 30m, 12h or 90d; or else never', spanIn)
    .option('--label <text>', 'what it is for');
  administer<CreateOptions>(create, edge, async ({ client, options, showChange }) => {
    const { merchant, environment, permission: permissions, expiresIn, label } = options;
    const path = ['merchants', idIn(merchant, 'merchant'), 'keys'];
    const body = { environment, permissions, expiresIn, label };
    const { data } = await client.ask({ method: 'POST', path, body, expects: createdKey });
    showChange(data, shownOnce(data));
  });

  const list = keys.command('list').description("list a merchant's keys, newest first");
  pageOptions(list.requiredOption('--merchant <id>', 'whose keys'));
  administer<PageOptions & { readonly merchant: string }>(list, edge, async ({ client, options, show }) => {
    const path = ['merchants', idIn(options.merchant, 'merchant'), 'keys'];
    const expects = Type.Array(apiKeySchema);
    const { data, page } = await client.ask({ method: 'GET', path, query: pageQuery(options), expects });
    show(data, [...(data.length === 0 ? [] : keyTable(data)), pageLine(data.length, 'key', page)]);
  });

  const revoke = keys.command('revoke <keyid>').description('end a key for good');
  administer(revoke, edge, async ({ client, args, showChange }) => {
    const path = ['keys', idIn(args[0], 'key'), 'revoke'];
    const { data } = await client.ask({ method: 'POST', path, expects: changedKey });
    showChange(data, [`The key ${data.keyId} of the merchant ${data.merchantId} is revoked.`]);
  });

  const reset = keys.command('reset <keyid>').description('replace a key by a new one, which is shown once');
  reset.option('--grace <span>', 'the old one is valid for 30m, 24h or 7d more; or else it ends now', secondsIn);
  administer<{ readonly grace?: number }>(reset, edge, async ({ client, args, options, showChange }) => {
    const path = ['keys', idIn(args[0], 'key'), 'reset'];
    const body = { graceSeconds: options.grace };
    const { data } = await client.ask({ method: 'POST', path, body, expects: replacedKey });
    const { keyId, status, expiresAt } = data.replaces;
    const end = status === 'ACTIVE' ? `ends at ${expiresAt ?? 'no time'}` : 'is revoked';
    showChange(data, [...shownOnce(data), `The old key ${keyId} ${end}.`]);
  });
  keysImportCommand(keys, edge);
  keysExportCommand(keys, edge);
  return keys.addCommand(fingerprintCommand(io));
}

function shownOnce({ key, ...told }: ApiKey & { readonly key: string }): string[] {
  return [...keyTable([told]), '', `  ${key}`, '', 'Store this key now: it is not shown again.'];
}

function keyTable(keys: readonly ApiKey[]): string[] {
  return tableLines(
    ['KEYID', 'ENVIRONMENT', 'STATUS', 'PERMISSIONS', 'CREATED', 'EXPIRES', 'LABEL'],
    keys.map(({ keyId, environment, status, permissions, createdAt, expiresAt, label }) => [
      ...[keyId, environment, status, permissions.join(' '), createdAt, expiresAt ?? 'never', label ?? ''],
    ]),
    { cut: ['LABEL'], wrap: ['PERMISSIONS'] },
  );
}

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
function keysExportCommand(keys: Command, { io, env }: AdminEdge): void {
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
