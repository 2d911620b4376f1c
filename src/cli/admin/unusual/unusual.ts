import { type Command as CommandType, Command, Option } from 'commander';
import {
  findingDecisions,
  decidedSchema,
  ruleStateSchema,
  undeliveredSchema,
  type UnusualFinding,
  unusualFindingSchema,
} from '../../../registry/unusual/schema.js';
import Type from '../../../typebox/typebox.js';
import { unusualRules } from '../../../usage/unusual/finding.js';
import type { CommandIo } from '../../command-io.js';
import { administer, type AdminEdge } from '../admin-call.js';
import { idIn, pageLine, pageOptions, type PageOptions, pageQuery } from '../arguments.js';
import { type Environment, WrongUsage } from '../peer.js';
import { recordLines, tableLines } from '../table.js';
import { replayCommand } from './replay.js';

interface ListOptions extends PageOptions {
  readonly merchant?: string;
  readonly keyId?: string;
  readonly rule?: string;
  readonly all?: true;
}

/** Creates the commands `unusual list`, `show`, `answer`, `webhooks` and `replay`. */
export function unusualCommand(io: CommandIo, env: Environment = process.env): Command {
  const unusual = new Command('unusual').description('show findings about unusual use of keys, which may be misuse');
  const edge = { io, env };
  listCommand(unusual, edge);

  const one = unusual.command('show <id>').description('show a finding');
  administer(one, edge, async ({ client, args, show }) => {
    const path = ['unusual', idIn(args[0], 'finding')];
    const { data } = await client.ask({ method: 'GET', path, expects: unusualFindingSchema });
    show(data, findingLines(data));
  });

  const decide = unusual
    .command('answer <id> <answer>')
    .description(
      'record your decision about a finding: fine (this pattern of use is no longer reported for this key), look (under investigation), revoked (revokes the key now)',
    );
  administer(decide, edge, async ({ client, args, show, showChange }) => {
    const path = ['unusual', idIn(args[0], 'finding'), 'answer'];
    const body = { answer: decisionIn(args[1]) };
    const { data } = await client.ask({ method: 'POST', path, body, expects: decidedSchema });
    const { propagation, ...finding } = data;
    if (propagation === null) show(data, findingLines(finding));
    else showChange({ ...finding, propagation }, findingLines(finding));
  });

  const webhooks = unusual.command('webhooks').description('list webhook messages that have not been delivered');
  administer(webhooks, edge, async ({ client, show }) => {
    const path = ['unusual', 'webhooks'];
    const { data } = await client.ask({ method: 'GET', path, expects: Type.Array(undeliveredSchema) });
    const rows = data.map(({ id, target, createdAt, attempts, nextAt, problem }) => [
      ...[
        id,
        target ?? 'no longer configured',
        createdAt,
        String(attempts),
        nextAt ?? 'never: given up',
        problem ?? '',
      ],
    ]);
    const heading = ['ID', 'TARGET', 'CREATED', 'ATTEMPTS', 'NEXT', 'PROBLEM'];
    show(data, rows.length === 0 ? ['Every webhook was delivered.'] : tableLines(heading, rows, { wrap: ['PROBLEM'] }));
  });

  unusual.addCommand(replayCommand(io));
  return unusual;
}

function listCommand(unusual: CommandType, edge: AdminEdge): void {
  const list = unusual
    .command('list')
    .description('list findings without a decision, or with the decision look, newest first');
  pageOptions(list)
    .option('--merchant <id>', 'findings of this merchant')
    .option('--key-id <keyid>', 'findings of this key')
    .addOption(new Option('--rule <rule>', 'findings of this rule').choices([...unusualRules]))
    .option('--all', 'also list findings with the decision fine or revoked');
  administer<ListOptions>(list, edge, async ({ client, options, show }) => {
    const { merchant, keyId, rule, all } = options;
    const query = {
      ...pageQuery(options),
      merchantId: merchant === undefined ? undefined : idIn(merchant, 'merchant'),
      keyId: keyId === undefined ? undefined : idIn(keyId, 'key'),
      rule,
      status: all === true ? undefined : 'open',
    };
    const expects = Type.Array(unusualFindingSchema);
    const { data, page } = await client.ask({ method: 'GET', path: ['unusual'], query, expects });
    const rules = await client.ask({
      ...{ method: 'GET', path: ['unusual', 'rules'], expects: Type.Array(ruleStateSchema) },
    });
    const rows = data.map((one) => [one.id, one.seenAt, one.merchantId, one.keyId, one.message, one.decision ?? '']);
    const heading = ['ID', 'SEEN', 'MERCHANT', 'KEYID', 'WHAT', 'ANSWER'];
    const off = rules.data.flatMap(({ rule: name, isOff }) =>
      isOff === null ? [] : [`Off: ${name}, because ${isOff}.`],
    );
    const table = rows.length === 0 ? [] : tableLines(heading, rows, { wrap: ['WHAT'] });
    show(data, [...table, pageLine(rows.length, 'finding', page), ...off]);
  });
}

function decisionIn(text = ''): (typeof findingDecisions)[number] {
  const decision = findingDecisions.find((one) => one === text);
  if (decision !== undefined) return decision;
  throw new WrongUsage(`the argument <answer> must be one of ${findingDecisions.join(', ')}`);
}

function findingLines(one: UnusualFinding): string[] {
  const network = one.asNumber === null ? [] : ([['network', `AS${one.asNumber}`]] as const);
  return recordLines([
    ['id', one.id],
    ['merchant', one.merchantId],
    ['key', one.keyId],
    ['rule', one.rule],
    ['kind', one.kind],
    ['what', one.message],
    ['seen', one.seenAt],
    ['found', one.foundAt],
    ...(one.address === null ? [] : ([['address', one.address]] as const)),
    ...(one.country === null ? [] : ([['country', one.country]] as const)),
    ...network,
    [
      'answer',
      one.decision === null ? 'none yet' : `${one.decision}, by ${one.decidedBy ?? ''} at ${one.decidedAt ?? ''}`,
    ],
  ]);
}
