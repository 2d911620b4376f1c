import { unlink, writeFile } from 'node:fs/promises';
import { Command } from 'commander';
import { OperatorError } from '../../../config/operator-error.js';
import { creationProblemOf, fileProblemOf } from '../../../config/operator-file.js';
import { type AdministratorToken, createdTokenSchema, tokenSchema } from '../../../registry/administrators/schema.js';
import Type, { type Static } from '../../../typebox/typebox.js';
import type { CommandIo } from '../../command-io.js';
import { completely } from '../../interruption.js';
import { administer } from '../admin-call.js';
import { collect, pageLine, pageOptions, type PageOptions, pageQuery, secondsIn } from '../arguments.js';
import type { Environment } from '../peer.js';
import { printable } from '../printable.js';
import { tableLines } from '../table.js';
import { administratorIdIn } from './administrators.js';

interface CreateOptions {
  readonly name: string;
  readonly administrator?: string;
  readonly role?: readonly string[];
  readonly source?: readonly string[];
  readonly expiresIn?: number;
  readonly output?: string;
}

/** Creates the commands `tokens create`, `list` and `revoke`. */
export function tokensCommand(io: CommandIo, env: Environment = process.env): Command {
  const tokens = new Command('tokens').description(
    'manage the tokens with which commands and programs authenticate to the admin API',
  );
  const edge = { io, env };

  const create = tokens.command('create').description('create a token; it is shown only once');
  create
    .requiredOption('--name <text>', 'purpose of the token, e.g. laptop')
    .option(
      '--administrator <id>',
      'owner of the token (default: you); for others, you need the permission administrators:write',
    )
    .option<readonly string[]>(
      '--role <role>',
      'give the token only this role of the administrator (repeatable; default: all their roles)',
      collect,
    )
    .option<readonly string[]>('--source <cidr>', 'valid only from this address or CIDR (repeatable)', collect)
    .option('--expires-in <span>', 'time until the token expires, at most 366d (default: 90d)', secondsIn)
    .option('--output <file>', 'write the token to this new file, readable only by you, and do not print it');
  administer<CreateOptions>(create, edge, async ({ client, options, show }) => {
    const { name, administrator, role: roles, source: sources, expiresIn: expiresInSeconds, output } = options;
    const administratorId = administrator === undefined ? undefined : administratorIdIn(administrator);
    const body = { name, administratorId, roles, sources, expiresInSeconds };
    // Create the file before the request. Otherwise, if the file could not be created, the only copy of a valid token
    // would be lost. For the same reason, Ctrl-C ends the command only after the token is stored or printed.
    await completely(async () => {
      if (output !== undefined) await createPrivate(output);
      const { data } = await orDelete(output, () =>
        client.ask({ method: 'POST', path: ['tokens'], body, expects: createdTokenSchema }),
      );
      const { token, ...shown } = data;
      if (output === undefined) {
        const last = 'Store this token now: it is not shown again. Commands read it with --token-file.';
        show(data, [...tokenTable([shown]), '', `  ${token}`, '', last]);
        return;
      }
      await writeToken(output, data);
      show(shown, [...tokenTable([shown]), '', `The token is in ${output}.`]);
    });
  });

  const list = tokens.command('list').description('list tokens, newest first');
  list.option(
    '--administrator <id>',
    'tokens of this administrator (default: your own); for others, you need the permission administrators:read',
  );
  administer<PageOptions & { readonly administrator?: string }>(
    pageOptions(list),
    edge,
    async ({ client, options, show }) => {
      const { administrator } = options;
      const administratorId = administrator === undefined ? undefined : administratorIdIn(administrator);
      const query = { ...pageQuery(options), administratorId };
      const expects = Type.Array(tokenSchema);
      const { data, page } = await client.ask({ method: 'GET', path: ['tokens'], query, expects });
      show(data, [...(data.length === 0 ? [] : tokenTable(data)), pageLine(data.length, 'token', page)]);
    },
  );

  const revoke = tokens.command('revoke <id>').description('revoke a token at once');
  administer(revoke, edge, async ({ client, args, show }) => {
    const path = ['tokens', administratorIdIn(args[0], 'a token: see "merchant-gateway tokens list"'), 'revoke'];
    const { data } = await client.ask({ method: 'POST', path, expects: tokenSchema });
    show(data, [`The token ${data.id} (${data.name}) is revoked.`]);
  });
  return tokens;
}

async function createPrivate(file: string): Promise<void> {
  try {
    await writeFile(file, '', { mode: 0o600, flag: 'wx' });
  } catch (error) {
    throw new OperatorError(`Cannot create ${file}: ${creationProblemOf(error)}.`, { cause: error });
  }
}

/** Writes a created token to its file. If that fails, the error has the id that a revocation of the token needs. */
async function writeToken(file: string, { id, token }: Static<typeof createdTokenSchema>): Promise<void> {
  try {
    await orDelete(file, () => writeFile(file, `${token}\n`, { flush: true }));
  } catch (error) {
    const next = `Revoke it with "merchant-gateway tokens revoke ${printable(id)}".`;
    throw new OperatorError(
      `The token ${printable(id)} was created but cannot be written to ${file}: ${fileProblemOf(error)}. ${next}`,
      { cause: error },
    );
  }
}

/** Deletes the new file if `act` fails, so that the user can repeat the command with the same file. */
async function orDelete<Result>(file: string | undefined, act: () => Promise<Result>): Promise<Result> {
  try {
    return await act();
  } catch (error) {
    if (file !== undefined) await unlink(file).catch(() => undefined);
    throw error;
  }
}

function tokenTable(tokens: readonly AdministratorToken[]): string[] {
  return tableLines(
    ['ID', 'NAME', 'KIND', 'ROLES', 'EXPIRES', 'REVOKED', 'LAST USED', 'FROM'],
    tokens.map((one) => [
      ...[one.id, one.name, one.kind, one.roles?.join(' ') ?? 'all', one.expiresAt, one.revokedAt ?? ''],
      ...[one.lastUsedAt ?? 'never', one.lastSource ?? ''],
    ]),
    { cut: ['NAME'], wrap: ['ROLES'] },
  );
}
