import { setTimeout as wait } from 'node:timers/promises';
import { Command, InvalidArgumentError } from 'commander';
import { OperatorError } from '../../../config/operator-error.js';
import { type Refusal, refusalSchema } from '../../../registry/usage/schema.js';
import Type from '../../../typebox/typebox.js';
import type { CommandIo } from '../../command-io.js';
import { administer, type AdminCall } from '../admin-call.js';
import { idIn, loggedIdIn, pageLine, pageOptions, type PageOptions, pageQuery, secondsIn } from '../arguments.js';
import { type Environment, WrongUsage } from '../peer.js';
import { printable } from '../printable.js';
import { recordLines } from '../table.js';

const pollMilliseconds = 1_000;
const expects = Type.Array(refusalSchema);

/** The options of `refusals`. */
interface RefusalsOptions extends PageOptions {
  readonly merchant: string;
  readonly key?: string;
  readonly code?: string;
  readonly address?: string;
  readonly requestId?: string;
  readonly since?: number;
  readonly after?: string;
  readonly follow?: true;
}

/**
 * Creates the command `refusals`, which shows the refused requests of a merchant.
 * @param pause waits before `--follow` polls the registry again; returns false to end the polling
 */
export function refusalsCommand(
  io: CommandIo,
  env: Environment = process.env,
  pause: () => Promise<boolean> = () => wait(pollMilliseconds, true),
): Command {
  const refusals = new Command('refusals').description('show which requests of a merchant were refused, and why');
  refusals
    .requiredOption('--merchant <id>', 'merchant of the requests')
    .option('--key <keyid>', 'only requests with this key')
    .option('--code <code>', 'only refusals with this code, e.g. ip_not_allowed', loggedIdIn)
    .option('--address <address>', 'only requests from this address', loggedIdIn)
    .option('--request-id <id>', 'only the request with this id (X-Request-Id)', loggedIdIn)
    .option('--since <span>', 'only refusals of this period up to now, e.g. 30m or 2d', secondsIn)
    .option(
      '--after <id>',
      'only refusals after the refusal with this id, oldest first instead of newest first',
      refusalIn,
    )
    .option('--follow', 'also print new refusals as they happen, until Ctrl-C; with --json, each refusal is one line');
  administer<RefusalsOptions>(pageOptions(refusals), { io, env }, async (call) => {
    const { client, options, show } = call;
    const path = ['merchants', idIn(options.merchant, 'merchant'), 'refusals'];
    const { code, address, requestId, since, after } = options;
    const filter = {
      ...{ key: options.key === undefined ? undefined : idIn(options.key, 'key'), code, address, requestId },
      since: since === undefined ? undefined : new Date(Date.now() - since * 1_000).toISOString(),
    };
    if (options.follow !== true) {
      const query = { ...filter, after, ...pageQuery(options) };
      const { data, page } = await client.ask({ method: 'GET', path, query, expects });
      show(data, [...data.flatMap((one) => [...refusalLines(one), '']), pageLine(data.length, 'refusal', page)]);
      return;
    }
    if (options.page !== undefined || options.perPage !== undefined)
      throw new WrongUsage('--page and --per-page cannot be combined with --follow');
    await follow(call, { path, filter, after, pause, io });
  });
  return refusals;
}

/** Prints refusals, oldest first, and polls the registry for new ones until `pause` returns false. */
async function follow(
  { client, options }: AdminCall<RefusalsOptions & { readonly json?: true }>,
  asked: {
    readonly path: readonly string[];
    readonly filter: Readonly<Record<string, string | undefined>>;
    readonly after: string | undefined;
    readonly pause: () => Promise<boolean>;
    readonly io: CommandIo;
  },
): Promise<void> {
  const { path, filter, pause, io } = asked;
  const read = async (after: string | undefined): Promise<Refusal[]> =>
    (await client.ask({ method: 'GET', path, query: { ...filter, after, per_page: '100' }, expects })).data;
  let after = asked.after;
  try {
    do {
      for (let isMore = true; isMore;) {
        const page = await read(after);
        // Without `after`, the registry sends the newest refusals, newest first. Reverse them to print the oldest
        // first.
        const data = after === undefined ? page.toReversed() : page;
        for (const one of data)
          io.out(options.json === true ? `${printable(JSON.stringify(one))}\n` : `${refusalLines(one).join('\n')}\n\n`);
        isMore = after !== undefined && data.length > 0;
        after = String(data.at(-1)?.id ?? after ?? 0);
      }
    } while (await pause());
  } catch (error) {
    if (!(error instanceof OperatorError) || after === undefined) throw error;
    throw new OperatorError(`${error.message}\nContinue with --after ${after}.`, { cause: error });
  }
}

function refusalLines(refusal: Refusal): string[] {
  const { id, at, environment, code, status, message, method, path, address, keyId, header, requestId } = refusal;
  const { meaning, remedy } = refusal;
  return recordLines(
    [
      ['refused', `${at} ${environment} ${status} ${code}${message === null ? '' : `: ${message}`}`],
      ['meaning', meaning ?? ''],
      ['remedy', remedy ?? ''],
      ['request', `${method} ${path}`],
      ['from', address ?? 'unknown'],
      ['key', keyId ?? ''],
      [header?.name ?? '', header?.value ?? ''],
      ['request id', requestId],
      ['id', String(id)],
    ].flatMap(([name = '', value = '']) => (value === '' ? [] : [[printable(name), value] as const])),
  );
}

function refusalIn(value: string): string {
  if (/^(?:0|[1-9][0-9]{0,14})$/.test(value)) return value;
  throw new InvalidArgumentError('Expected the id of a refusal, as "merchant-gateway refusals" prints it.');
}
