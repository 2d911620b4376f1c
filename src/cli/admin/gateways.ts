import { Command } from 'commander';
import Type from '../../typebox/typebox.js';
import type { CommandIo } from '../command-io.js';
import type { Environment } from './access.js';
import { administer } from './admin-call.js';
import { tableLines } from './table.js';

const liveGateways = Type.Array(
  Type.Object({
    instanceId: Type.String(),
    host: Type.String(),
    environment: Type.String(),
    revision: Type.Integer(),
    startedAt: Type.String(),
  }),
);

/** `gateways list`. */
export function gatewaysCommand(io: CommandIo, env: Environment = process.env): Command {
  const gateways = new Command('gateways').description('show the gateways that run');
  const list = gateways.command('list').description('list the gateways that run, and which change each has confirmed');
  administer(list, { io, env }, async ({ client, show }) => {
    const { data } = await client.ask({ method: 'GET', path: ['gateways'], expects: liveGateways });
    const rows = data.map((one) => [one.instanceId, one.host, one.environment, String(one.revision), one.startedAt]);
    const heading = ['INSTANCE', 'HOST', 'ENVIRONMENT', 'REVISION', 'STARTED'];
    show(data, rows.length === 0 ? ['No gateway runs.'] : tableLines(heading, rows));
  });
  return gateways;
}
