import { Command, Option } from 'commander';
import { type Approval, approvalSchema, approvalStatuses } from '../../../registry/approvals/schema.js';
import { propagationSchema } from '../../../registry/propagation-schema.js';
import Type from '../../../typebox/typebox.js';
import type { CommandIo } from '../../command-io.js';
import { administer } from '../admin-call.js';
import { idIn, pageLine, pageOptions, type PageOptions, pageQuery } from '../arguments.js';
import type { Environment } from '../peer.js';
import { recordLines, tableLines } from '../table.js';

/** Creates the commands `approvals list`, `show`, `approve` and `reject`. */
export function approvalsCommand(io: CommandIo, env: Environment = process.env): Command {
  const approvals = new Command('approvals').description(
    'show, approve and reject changes that need the approval of another administrator',
  );
  const edge = { io, env };

  const list = approvals.command('list').description('list the requests that wait for approval, newest first');
  list
    .addOption(
      new Option('--status <status>', 'requests with this status').choices([...approvalStatuses]).default('WAITING'),
    )
    .addOption(new Option('--all', 'requests with any status').conflicts('status'));
  administer<PageOptions & { readonly status: string; readonly all?: true }>(
    pageOptions(list),
    edge,
    async ({ client, options, show }) => {
      const query = { ...pageQuery(options), status: options.all === true ? undefined : options.status };
      const expects = Type.Array(approvalSchema);
      const { data, page } = await client.ask({ method: 'GET', path: ['approvals'], query, expects });
      const rows = data.map((one) => [
        ...[one.id, one.status, one.requester, one.change, one.subject ?? '', changesIn(one).join(', ')],
        one.expiresAt,
      ]);
      const heading = ['ID', 'STATUS', 'REQUESTED BY', 'CHANGE', 'OF', 'WOULD CHANGE', 'UNTIL'];
      const table = rows.length === 0 ? [] : tableLines(heading, rows, { wrap: ['WOULD CHANGE'] });
      show(data, [...table, pageLine(rows.length, 'request', page)]);
    },
  );

  const one = approvals.command('show <id>').description('show what a request would change');
  administer(one, edge, async ({ client, args, show }) => {
    const path = ['approvals', idIn(args[0], 'approval')];
    const { data } = await client.ask({ method: 'GET', path, expects: approvalSchema });
    show(data, approvalLines(data));
  });

  const approve = approvals
    .command('approve <id>')
    .description(
      'approve a request of another administrator; the registry then makes the change, unless the record has changed since the request. The money of an approved funding moves when the requester runs "merchant-gateway wallets fund" again with --reference and --approval',
    );
  administer(approve, edge, async ({ client, args, show, showChange }) => {
    const path = ['approvals', idIn(args[0], 'approval'), 'approve'];
    const expects = Type.Object({ ...approvalSchema.properties, propagation: propagationSchema });
    const { data } = await client.ask({ method: 'POST', path, expects });
    // Gateways receive changes to merchants, but no other change that needs an approval. For the others, show no
    // propagation: a registry of a former release reports that of an earlier change.
    if (data.change.startsWith('merchant.')) showChange(data, approvalLines(data));
    else show(data, approvalLines(data));
  });

  const reject = approvals.command('reject <id>').description('reject a request, or withdraw your own');
  administer(reject, edge, async ({ client, args, show }) => {
    const path = ['approvals', idIn(args[0], 'approval'), 'reject'];
    const { data } = await client.ask({ method: 'POST', path, expects: approvalSchema });
    show(data, approvalLines(data));
  });
  return approvals;
}

function approvalLines(one: Approval): string[] {
  return recordLines([
    ['id', one.id],
    ['status', one.status],
    ['change', one.change],
    ...(one.subject === null ? [] : ([['of', one.subject]] as const)),
    ...changesIn(one).map((line, index) => [index === 0 ? 'would change' : '', line] as const),
    ['requested by', `${one.requester} at ${one.requestedAt}`],
    ...(one.reason === null ? [] : ([['because', one.reason]] as const)),
    ['until', one.expiresAt],
    ['needs', one.needs],
    ...(one.decidedAt === null ? [] : ([['decided by', `${one.decider ?? ''} at ${one.decidedAt}`]] as const)),
    ...(one.decision === null ? [] : ([['decision', one.decision]] as const)),
  ]);
}

/**
 * Returns a line for each field that would change, with its value before and after. For a new record, returns a line
 * for each field that is not null.
 */
function changesIn({ before, after }: Approval): string[] {
  const names = Object.keys(after ?? {});
  const text = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value));
  return names.flatMap((name) => {
    const [was, is] = [before?.[name], after?.[name]];
    if (before === null) return is === null ? [] : [`${name} ${text(is)}`];
    return text(was) === text(is) ? [] : [`${name} ${text(was)} → ${text(is)}`];
  });
}
