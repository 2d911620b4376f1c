import { Command } from 'commander';
import { propagationSchema } from '../../registry/propagation-schema.js';
import { heldBackSchema, restoreSchema } from '../../registry/restores/schema.js';
import Type from '../../typebox/typebox.js';
import type { CommandIo } from '../command-io.js';
import { administer } from './admin-call.js';
import { idIn, pageLine, pageOptions, type PageOptions, pageQuery } from './arguments.js';
import type { Environment } from './peer.js';
import { tableLines } from './table.js';

/**
 * Schema of a key or merchant that the registry keeps inactive after a database restore. `keyId` is optional: a
 * registry of the previous release sends `id` for both keys and merchants, and no `keyId`.
 */
const heldBack = Type.Object({ ...heldBackSchema.properties, keyId: Type.Optional(heldBackSchema.properties.keyId) });

const lifted = Type.Object({
  ...Type.Pick(heldBack, ['id', 'kind', 'merchantId']).properties,
  propagation: propagationSchema,
});

/** Creates the commands `restores list`, `held` and `lift`. */
export function restoresCommand(io: CommandIo, env: Environment = process.env): Command {
  const restores = new Command('restores').description(
    "after a restore of the registry's database, show for which periods changes may be missing, and reactivate keys and merchants that the registry keeps inactive for safety",
  );
  const edge = { io, env };

  const list = restores.command('list').description('list the periods for which the database may lack changes');
  administer(list, edge, async ({ client, show }) => {
    const { data } = await client.ask({ method: 'GET', path: ['restores'], expects: Type.Array(restoreSchema) });
    const rows = data.map(({ foundAt, unknownSince, certain }) => [
      ...[unknownSince ?? 'the beginning', foundAt],
      certain
        ? 'a gateway or Redis has changes that the database lacks'
        : 'changes may be lost: Redis and the gateways have no records to compare the database with',
    ]);
    const emptyText = ['No changes are known to be missing from the database.'];
    show(
      data,
      rows.length === 0
        ? emptyText
        : tableLines(['CHANGES UNKNOWN SINCE', 'UNTIL', 'BECAUSE'], rows, { wrap: ['BECAUSE'] }),
    );
  });

  const held = restores
    .command('held')
    .description(
      'list the keys and merchants that the registry keeps inactive after a restore of its database, newest first',
    );
  pageOptions(held);
  administer<PageOptions>(held, edge, async ({ client, options, show }) => {
    const expects = Type.Array(heldBack);
    const path = ['restores', 'held'];
    const { data, page } = await client.ask({ method: 'GET', path, query: pageQuery(options), expects });
    const rows = data.map(({ id, kind, merchantId, source, foundAt }) => [
      ...[kind, kind === 'key' ? id : '', merchantId, source, foundAt],
    ]);
    const table = rows.length === 0 ? [] : tableLines(['KIND', 'KEYID', 'MERCHANT', 'KNOWN BY', 'FOUND'], rows);
    show(data, [...table, pageLine(data.length, 'record', page)]);
  });

  const lift = restores
    .command('lift <id>')
    .description(
      'reactivate a key or merchant: give it the state that it had in the restored database, for example ACTIVE',
    );
  administer(lift, edge, async ({ client, args, showChange }) => {
    const path = ['restores', 'held', idIn(args[0], 'key'), 'lift'];
    const { data } = await client.ask({ method: 'POST', path, expects: lifted });
    showChange(data, [
      `The ${data.kind} ${data.id} is no longer kept inactive: it has the state that it had in the restored database.`,
    ]);
  });
  return restores;
}
