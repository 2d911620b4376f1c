import { type Command, Option } from 'commander';
import { counted } from '../../../audit/finding.js';
import { addressRowSchema, forgottenSchema, gatewayRowSchema, verdictSchema } from '../../../registry/usage/schema.js';
import Type, { type Static } from '../../../typebox/typebox.js';
import { type AdminEdge, administer } from '../admin-call.js';
import { collect, idIn, pageLine, pageOptions, type PageOptions, pageQuery, secondsIn } from '../arguments.js';
import { WrongUsage } from '../peer.js';
import { recordLines, tableLines } from '../table.js';
import { addressLines } from './usage.js';

interface AddressesOptions extends PageOptions {
  readonly since: number;
  readonly allow?: readonly string[];
}

/** Adds the commands `merchants addresses` and `merchants forget-usage`. */
export function merchantUsageCommands(merchants: Command, edge: AdminEdge): void {
  const addresses = merchants.command('addresses <id>').description('show the client addresses of a merchant by day');
  addresses
    .option('--since <span>', 'period up to now, e.g. 30d (default: 7d)', secondsIn, 7 * 86_400)
    .option<readonly string[]>(
      '--allow <cidr>',
      'show which accepted requests an allowlist with this address or CIDR would have refused (repeatable)',
      collect,
    );
  administer<AddressesOptions>(pageOptions(addresses), edge, async ({ client, options, args, show }) => {
    const path = ['merchants', idIn(args[0], 'merchant'), 'addresses'];
    const since = new Date(Date.now() - options.since * 1_000).toISOString();
    if (options.allow !== undefined) {
      const query = { since, allow: options.allow.join(',') };
      const { data } = await client.ask({
        ...({ method: 'GET', path: [...path, 'verdict'], expects: verdictSchema } as const),
        query,
      });
      show(data, verdictLines(data));
      return;
    }
    const query = { since, ...pageQuery(options) };
    const { data, page } = await client.ask({ method: 'GET', path, query, expects: Type.Array(addressRowSchema) });
    show(data, [...(data.length === 0 ? [] : addressLines(data)), pageLine(data.length, 'row', page)]);
  });

  const forget = merchants
    .command('forget-usage <id>')
    .description('delete all request counts, refusals and findings of a merchant')
    .option('--confirm <id>', 'repeat the id of the merchant to confirm the deletion, which cannot be undone');
  administer<{ readonly confirm?: string }>(forget, edge, async ({ client, options, args, show }) => {
    const id = idIn(args[0], 'merchant');
    if (options.confirm !== id) throw new WrongUsage(`the deletion cannot be undone: confirm it with --confirm ${id}`);
    const path = ['merchants', id, 'usage'];
    const { data } = await client.ask({ method: 'DELETE', isRepeatable: true, path, expects: forgottenSchema });
    show(data, [`Deleted the usage and findings of the merchant ${id} (${counted(data.rows, 'database row')}).`]);
  });
}

function verdictLines({
  since,
  until,
  requests,
  refused,
  uncertain,
  addresses,
}: Static<typeof verdictSchema>): string[] {
  const from = refused.addresses === 1 ? '1 address' : `${refused.addresses} addresses`;
  const summary = recordLines([
    ['time', `${since} to ${until}`],
    ['accepted requests', String(requests)],
    ['would be refused', `${refused.requests} from ${from}`],
    [
      'uncertain',
      `${uncertain} of the accepted requests (the registry stored no address, or only a network that the allowlist admits in part)`,
    ],
  ]);
  if (addresses.length === 0) return summary;
  const rows = addresses.map((one) => [one.address, one.country ?? '', String(one.requests), one.firstAt, one.lastAt]);
  return [...summary, '', ...tableLines(['REFUSED ADDRESS', 'COUNTRY', 'REQUESTS', 'FIRST', 'LAST'], rows)];
}

/** Adds the command `gateways usage`. */
export function gatewaysUsageCommand(gateways: Command, edge: AdminEdge): void {
  const usage = gateways
    .command('usage')
    .description('show whether each gateway process has sent all its request counts');
  usage.addOption(
    new Option('--state <state>', 'only processes in this state').choices(['running', 'ended', 'incomplete']),
  );
  administer<PageOptions & { readonly state?: string }>(pageOptions(usage), edge, async ({ client, options, show }) => {
    const path = ['usage', 'gateways'];
    const query = { state: options.state, ...pageQuery(options) };
    const { data, page } = await client.ask({ method: 'GET', path, query, expects: Type.Array(gatewayRowSchema) });
    const rows = data.map((one) => [
      ...[one.instance, one.environment, one.firstAt, one.lastAt, String(one.sequence)],
      one.incompleteSince === null ? one.state : `incomplete since ${one.incompleteSince}`,
      ...[String(one.lostBatches), String(one.droppedRefusals + one.droppedRows)],
    ]);
    const heading = ['PROCESS', 'ENVIRONMENT', 'FIRST', 'LAST', 'BATCHES', 'STATE', 'LOST', 'DROPPED DETAILS'];
    const table = rows.length === 0 ? [] : tableLines(heading, rows, { cut: ['PROCESS'], wrap: ['STATE'] });
    show(data, [...table, pageLine(data.length, 'row', page)]);
  });
}
