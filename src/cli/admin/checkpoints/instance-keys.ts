import { Command } from 'commander';
import { type InstanceKey, instanceKeySchema } from '../../../registry/checkpoints/schema.js';
import Type from '../../../typebox/typebox.js';
import type { CommandIo } from '../../command-io.js';
import { administer, type AdminCall } from '../admin-call.js';
import { pageLine, pageOptions, type PageOptions, pageQuery } from '../arguments.js';
import type { Environment } from '../peer.js';
import { tableLines } from '../table.js';

interface SpanOptions {
  readonly from?: string;
  readonly to?: string;
}

/** Creates the commands `instance-keys list`, `pin`, `confirm` and `end`. */
export function instanceKeysCommand(io: CommandIo, env: Environment = process.env): Command {
  const keys = new Command('instance-keys').description(
    'list, add and confirm the keys with which gateways sign their access logs, and end the validity of a key',
  );
  const edge = { io, env };

  const list = keys.command('list').description('list the public keys of gateways, newest first');
  pageOptions(list);
  administer<PageOptions>(list, edge, async ({ client, options, show }) => {
    const expects = Type.Array(instanceKeySchema);
    const { data, page } = await client.ask({
      ...{ method: 'GET', path: ['instance-keys'], query: pageQuery(options), expects },
    });
    const rows = data.map((key) => [key.name, key.publicKey, key.from, key.to ?? '', confirmedBy(key)]);
    const table = rows.length === 0 ? [] : tableLines(['NAME', 'PUBLIC KEY', 'FROM', 'TO', 'CONFIRMED'], rows);
    show(data, [...table, pageLine(data.length, 'key', page)]);
  });

  const pin = keys
    .command('pin <public-key>')
    .description(
      'add a public key that the registry accepts for the signed checkpoints of a gateway; to print the key, run "merchant-gateway audit public-key" on the machine of the gateway',
    )
    .option('--from <time>', 'time from which the key is valid, e.g. 2026-01-31T12:00:00Z (default: now)')
    .option('--to <time>', 'time until which the key is valid (default: no end)');
  administer<SpanOptions>(pin, edge, async ({ client, options, args, show }) => {
    const body = { publicKey: args[0], from: options.from, to: options.to };
    const { data } = await client.ask({ method: 'POST', path: ['instance-keys'], body, expects: instanceKeySchema });
    show(data, [`The key of ${data.name} is valid from ${data.from}${data.to === null ? '' : ` to ${data.to}`}.`]);
  });

  const confirm = keys
    .command('confirm <public-key>')
    .description(
      'confirm that a key belongs to the gateway whose name "merchant-gateway instance-keys list" shows beside the key; before you confirm, compare the key with the output of "merchant-gateway audit public-key" on the machine of that gateway',
    );
  administer(confirm, edge, async ({ client, args, show }) => {
    const data = await change(client, 'confirm', { publicKey: args[0] });
    show(data, [`The key of ${data.name} is confirmed.`]);
  });

  const end = keys
    .command('end <public-key>')
    .description(
      'end the validity of a key; the registry rejects signatures that are made with the key after its validity has ended',
    )
    .option('--to <time>', 'time at which the validity of the key ends, e.g. 2026-01-31T12:00:00Z (default: now)');
  administer<SpanOptions>(end, edge, async ({ client, options, args, show }) => {
    const data = await change(client, 'end', { publicKey: args[0], to: options.to });
    show(data, [`The key of ${data.name} is not valid after ${data.to ?? ''}.`]);
  });
  return keys;
}

async function change(client: AdminCall<object>['client'], action: string, body: object): Promise<InstanceKey> {
  const path = ['instance-keys', action];
  return (await client.ask({ method: 'POST', path, body, expects: instanceKeySchema })).data;
}

function confirmedBy({ confirmedAt, confirmedBy: by }: InstanceKey): string {
  return confirmedAt === null ? 'not yet' : `${confirmedAt} by ${by ?? ''}`;
}
