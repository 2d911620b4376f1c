import { Command, Option } from 'commander';
import { OperatorError } from '../../config/operator-error.js';
import { apiKeySchema, createdKeySchema, type ListedKey } from '../../registry/keys/schema.js';
import { listedKeySchema, resetKeySchema } from '../../registry/keys/schema.js';
import { propagationSchema } from '../../registry/propagation-schema.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { fingerprintCommand } from '../audit/fingerprint.js';
import type { CommandIo } from '../command-io.js';
import { completely } from '../interruption.js';
import type { AdminResponse } from './admin-response.js';
import { type AdminEdge, administer } from './admin-call.js';
import { collect, idIn, pageLine, pageOptions, type PageOptions, pageQuery, secondsIn, spanIn } from './arguments.js';
import { keysImportCommand } from './import/keys-import.js';
import type { Environment } from './peer.js';
import { tableLines } from './table.js';

const propagation = propagationSchema;
const changedKey = Type.Object({ ...apiKeySchema.properties, propagation });
const createdKey = Type.Object({ ...createdKeySchema.properties, propagation });
const replacedKey = Type.Object({ ...resetKeySchema.properties, propagation });

interface CreateOptions {
  readonly merchant: string;
  readonly environment: string;
  readonly permission?: readonly string[];
  readonly expiresIn?: string;
  readonly label?: string;
}

type ListOptions = PageOptions & {
  readonly merchant: string;
  readonly environment?: string;
  readonly status?: string;
  readonly label?: string;
};

/** Creates the commands `keys create`, `list`, `show`, `revoke`, `reset`, `import`, `export` and `fingerprint`. */
export function keysCommand(io: CommandIo, env: Environment = process.env): Command {
  const keys = new Command('keys').description(
    'create, list, show, revoke, reset, import and export API keys of merchants',
  );
  const edge = { io, env };

  const create = keys.command('create').description('create a key; the key is shown only once');
  create
    .requiredOption('--merchant <id>', 'merchant of the key')
    .addOption(
      new Option('--environment <name>', 'environment of the key').choices(['live', 'test']).makeOptionMandatory(),
    )
    .option<readonly string[]>(
      '--permission <permission>',
      'permission, e.g. payouts:write (repeatable, default: *)',
      collect,
    )
    .option('--expires-in <span>', 'time until the key expires, e.g. 30m, 12h or 90d (default: never)', spanIn)
    .option('--label <text>', 'purpose of the key');
  administer<CreateOptions>(create, edge, async ({ client, options, showChange }) => {
    const { merchant, environment, permission: permissions, expiresIn, label } = options;
    const path = ['merchants', idIn(merchant, 'merchant'), 'keys'];
    const body = { environment, permissions, expiresIn, label };
    // Ctrl-C ends the command only after the key is shown. Otherwise a key could exist that nobody has seen.
    await completely(async () => {
      const { data } = await client.ask({ method: 'POST', path, body, expects: createdKey });
      showChange(data, shownOnce(data));
    });
  });

  const list = keys.command('list').description('list the keys of a merchant, newest first');
  list
    .requiredOption('--merchant <id>', 'merchant of the keys')
    .addOption(new Option('--environment <name>', 'only keys of this environment').choices(['live', 'test']))
    .addOption(new Option('--status <status>', 'only keys with this status').choices(['ACTIVE', 'REVOKED']))
    .option('--label <text>', 'only keys whose label contains this text');
  administer<ListOptions>(pageOptions(list), edge, async ({ client, options, show }) => {
    const { merchant, environment, status, label } = options;
    const path = ['merchants', idIn(merchant, 'merchant'), 'keys'];
    const query = { ...pageQuery(options), environment, status, label };
    const expects = Type.Array(listedKeySchema);
    const { data, page } = await client.ask({ method: 'GET', path, query, expects });
    show(data, [...(data.length === 0 ? [] : keyTable(data)), pageLine(data.length, 'key', page)]);
  });

  const show = keys
    .command('show <keyid>')
    .description('show the id, status and other properties of one key, without the secret key');
  administer(show, edge, async ({ client, args, show: print }) => {
    const path = ['keys', idIn(args[0], 'key')];
    const { data } = await client.ask({ method: 'GET', path, expects: listedKeySchema });
    print(data, keyTable([data]));
  });

  const revoke = keys.command('revoke <keyid>').description('revoke a key permanently');
  administer(revoke, edge, async ({ client, args, showChange }) => {
    const path = ['keys', idIn(args[0], 'key'), 'revoke'];
    const { data } = await client.ask({ method: 'POST', path, expects: changedKey });
    showChange(data, [`The key ${data.keyId} of the merchant ${data.merchantId} is revoked.`]);
  });

  const reset = keys.command('reset <keyid>').description('replace a key with a new key, which is shown only once');
  reset.option(
    '--grace <span>',
    'how long the old key stays valid, e.g. 30m, 24h or 7d (default: revoked at once)',
    secondsIn,
  );
  administer<{ readonly grace?: number }>(reset, edge, async ({ client, args, options, showChange }) => {
    const path = ['keys', idIn(args[0], 'key'), 'reset'];
    const body = { graceSeconds: options.grace };
    await completely(async () => {
      const { data } = await client.ask({ method: 'POST', path, body, expects: replacedKey });
      const { keyId, status, expiresAt } = data.replaces;
      const end = status === 'ACTIVE' ? `expires at ${expiresAt ?? 'no time'}` : 'is revoked';
      showChange(data, [...shownOnce(data), `The old key ${keyId} ${end}.`]);
    });
  });
  keysImportCommand(keys, edge);
  keysExportCommand(keys, edge);
  return keys.addCommand(fingerprintCommand(io));
}

function shownOnce({ key, ...shownKey }: ListedKey & { readonly key: string }): string[] {
  return [...keyTable([shownKey]), '', `  ${key}`, '', 'Store this key now: it is not shown again.'];
}

function keyTable(keys: readonly ListedKey[]): string[] {
  // A registry of the previous release does not send when a key was last used, so the column LAST USE is then omitted.
  const hasUse = keys.some(({ lastUse }) => lastUse !== undefined);
  return tableLines(
    ['KEYID', 'ENVIRONMENT', 'STATUS', 'PERMISSIONS', 'CREATED', 'EXPIRES', ...(hasUse ? ['LAST USE'] : []), 'LABEL'],
    keys.map(({ keyId, environment, status, permissions, createdAt, expiresAt, lastUse, label }) => [
      ...[keyId, environment, status, permissions.join(' '), createdAt, expiresAt ?? 'never'],
      ...(hasUse ? [lastUse?.at ?? 'never'] : []),
      label ?? '',
    ]),
    { cut: ['LABEL'], wrap: ['PERMISSIONS'] },
  );
}

/**
 * Schema of one page of an export. Entries can have any fields, because a newer registry can have fields that this
 * version does not know.
 */
const page = Type.Object({
  entries: Type.Array(Type.Object({})),
  next: Type.Union([Type.Null(), Type.String()]),
  revision: Type.Integer(),
});

interface ExportOptions {
  readonly merchant?: string;
  readonly environment?: string;
}

/** Creates the command `keys export`. */
function keysExportCommand(keys: Command, { io, env }: AdminEdge): void {
  const command = keys
    .command('export')
    .description('print merchants and hashes of keys as JSON lines, which "merchant-gateway keys import" reads')
    .option('--merchant <id>', 'only this merchant and its keys')
    .addOption(new Option('--environment <name>', 'only keys of this environment').choices(['live', 'test']));
  administer<ExportOptions>(command, { io, env }, async ({ client, options }) => {
    const { merchant, environment } = options;
    const filter = { merchantId: merchant === undefined ? undefined : idIn(merchant, 'merchant'), environment };
    let after: string | undefined;
    let until: string | undefined;
    let isEmpty = true;
    try {
      do {
        const { data }: AdminResponse<Static<typeof page>> = await client.ask({
          ...({ method: 'GET', path: ['exports'], expects: page } as const),
          query: { ...filter, after, until },
        });
        // `printable` is not needed here. JSON escapes all terminal control characters except DEL and C1 controls,
        // which stored texts cannot contain.
        isEmpty &&= data.entries.length === 0;
        if (data.entries.length > 0) io.out(`${data.entries.map((entry) => JSON.stringify(entry)).join('\n')}\n`);
        await io.drained?.();
        after = data.next ?? undefined;
        until ??= String(data.revision);
      } while (after !== undefined);
      if (isEmpty) io.err('No merchants or keys to export.\n');
    } catch (error) {
      if (!(error instanceof OperatorError) || until === undefined) throw error;
      throw new OperatorError(`${error.message}\nThe output is incomplete: export again.`, { cause: error });
    }
  });
}
