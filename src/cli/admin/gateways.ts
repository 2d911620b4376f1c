import { Command } from 'commander';
import Type, { type Static } from '../../typebox/typebox.js';
import type { CommandIo } from '../command-io.js';
import { administer } from './admin-call.js';
import type { Environment } from './peer.js';
import { tableLines } from './table.js';
import { gatewaysUsageCommand } from './usage/merchant-usage.js';

/** Schema of a gateway that the registry knows. A registry of the previous release omits the optional fields. */
const knownGateway = Type.Object({
  instanceId: Type.String(),
  host: Type.String(),
  environment: Type.String(),
  version: Type.Optional(Type.Union([Type.String(), Type.Null()])),
  revision: Type.Union([Type.Integer(), Type.Null()]),
  enrolled: Type.Optional(Type.Boolean()),
  confirms: Type.Optional(Type.Boolean()),
  lifetimeSeconds: Type.Optional(Type.Number()),
  lastSeenAt: Type.Optional(Type.String()),
  clockSkewMilliseconds: Type.Optional(Type.Union([Type.Integer(), Type.Null()])),
});

const heading = ['INSTANCE', 'HOST', 'ENVIRONMENT', 'VERSION', 'CONFIRMED', 'LIFETIME', 'LAST SEEN', 'CLOCK SKEW'];

/** Creates the commands `gateways list` and `gateways usage`. */
export function gatewaysCommand(io: CommandIo, env: Environment = process.env): Command {
  const gateways = new Command('gateways').description('show the gateways known to the registry');
  const list = gateways
    .command('list')
    .description(
      "list the gateways. CONFIRMED is the revision number of the newest change that a gateway has confirmed. LIFETIME is how long a gateway can use cached records after LAST SEEN. CLOCK SKEW is how far the gateway's clock is ahead of the registry's clock",
    );
  administer(list, { io, env }, async ({ client, show }) => {
    const { data } = await client.ask({ method: 'GET', path: ['gateways'], expects: Type.Array(knownGateway) });
    const rows = data.map((one) => [
      ...[one.instanceId, one.host, one.environment, one.version ?? 'unknown', confirmed(one)],
      ...[quantity(one.lifetimeSeconds, 's'), one.lastSeenAt ?? 'unknown', quantity(one.clockSkewMilliseconds, 'ms')],
    ]);
    const former = data.filter(({ confirms }) => confirms === false);
    const hint =
      'A gateway of an earlier release cannot confirm changes. Each change stays pending until that gateway has ' +
      'stopped and its LIFETIME has passed.';
    show(
      data,
      rows.length === 0
        ? ['No gateways.']
        : [...tableLines(heading, rows, { wrap: ['CONFIRMED'] }), ...(former.length > 0 ? [hint] : [])],
    );
  });
  gatewaysUsageCommand(gateways, { io, env });
  return gateways;
}

function confirmed({ revision, confirms, enrolled }: Static<typeof knownGateway>): string {
  if (confirms === false) return 'cannot confirm (earlier release)';
  return `${revision ?? 'nothing yet'}${enrolled === false ? ' (not allowed to cache yet)' : ''}`;
}

function quantity(value: number | null | undefined, unit: string): string {
  return typeof value === 'number' ? `${value} ${unit}` : 'unknown';
}
