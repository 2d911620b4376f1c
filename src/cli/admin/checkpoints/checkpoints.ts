import { Command } from 'commander';
import { checkpointSchema, findingSchema, witnessSchema } from '../../../registry/checkpoints/schema.js';
import Type from '../../../typebox/typebox.js';
import type { CommandIo } from '../../command-io.js';
import { administer } from '../admin-call.js';
import { pageLine, pageOptions, type PageOptions, pageQuery } from '../arguments.js';
import type { Environment } from '../peer.js';
import { tableLines } from '../table.js';

/** Creates the commands `checkpoints runs`, `findings` and `head`. */
export function checkpointsCommand(io: CommandIo, env: Environment = process.env): Command {
  const checkpoints = new Command('checkpoints').description(
    'show the checkpoints that gateways sent to the registry: signed line counts and hashes of their access logs',
  );
  const edge = { io, env };

  const runs = checkpoints
    .command('runs')
    .description(
      'list the newest signed checkpoint of each log run, oldest run first; a run is the part of an access log that one process wrote into one file',
    );
  pageOptions(runs);
  administer<PageOptions>(runs, edge, async ({ client, options, show }) => {
    const query = { ...pageQuery(options), of: 'runs' };
    const expects = Type.Array(checkpointSchema);
    const { data, page } = await client.ask({ method: 'GET', path: ['checkpoints'], query, expects });
    const rows = data.map(({ receivedAt, note }) => {
      const [origin = '', size = '', , occasion = ''] = note.split('\n');
      return [origin, size, occasion, new Date(receivedAt).toISOString()];
    });
    const table = rows.length === 0 ? [] : tableLines(['RUN', 'LINES', 'SIGNED', 'RECEIVED'], rows);
    show(data, [...table, pageLine(data.length, 'run', page)]);
  });

  const findings = checkpoints
    .command('findings')
    .description(
      'list the problems that the registry found in access logs when it received their checkpoints, newest first',
    );
  pageOptions(findings);
  administer<PageOptions>(findings, edge, async ({ client, options, show }) => {
    const expects = Type.Array(findingSchema);
    const path = ['checkpoints', 'findings'];
    const { data, page } = await client.ask({ method: 'GET', path, query: pageQuery(options), expects });
    const rows = data.map(({ foundAt, kind, run, message }) => [foundAt, kind, run, message]);
    const table = rows.length === 0 ? [] : tableLines(['FOUND', 'KIND', 'RUN', 'WHAT'], rows, { wrap: ['WHAT'] });
    show(data, [...table, pageLine(data.length, 'finding', page)]);
  });

  const head = checkpoints
    .command('head')
    .description(
      "print the public key that verifies the registry's receipts for checkpoints; with --json, also print the signed length and hash of the registry's list of checkpoints",
    );
  administer(head, edge, async ({ client, show }) => {
    const { data } = await client.ask({ method: 'GET', path: ['checkpoints', 'head'], expects: witnessSchema });
    show(data, [data.publicKey]);
  });
  return checkpoints;
}
