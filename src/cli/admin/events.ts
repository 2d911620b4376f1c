import { Command } from 'commander';
import { eventSchema } from '../../registry/events/schema.js';
import Type, { type Static } from '../../typebox/typebox.js';
import type { CommandIo } from '../command-io.js';
import { administer } from './admin-call.js';
import { formerKeyOption, idIn, pageLine, pageOptions, type PageOptions, pageQuery } from './arguments.js';
import type { Environment } from './peer.js';
import { tableLines } from './table.js';

/** Schema of an event with any action, because a newer registry may have actions that this version does not know. */
const anyEvent = Type.Object({ ...eventSchema.properties, action: Type.String() });

type ListOptions = PageOptions & {
  readonly merchant?: string;
  readonly keyId?: string;
  readonly key?: string;
  readonly action?: string;
  readonly since?: string;
};

/** Creates the command `events list`. */
export function eventsCommand(io: CommandIo, env: Environment = process.env): Command {
  const events = new Command('events').description('show who changed what and when');
  const list = events.command('list').description('list who changed what and when, newest first');
  list
    .option('--merchant <id>', 'only events of this merchant')
    .option('--key-id <keyid>', 'only events of this key')
    .addOption(formerKeyOption())
    .option('--action <action>', 'only events with this action, e.g. key.revoked')
    .option('--since <time>', 'only events since this time, e.g. 2026-01-31T12:00:00Z');
  administer<ListOptions>(pageOptions(list), { io, env }, async ({ client, options, show }) => {
    const { merchant, action, since } = options;
    const keyId = options.keyId ?? options.key;
    const query = {
      ...pageQuery(options),
      merchantId: merchant === undefined ? undefined : idIn(merchant, 'merchant'),
      keyId: keyId === undefined ? undefined : idIn(keyId, 'key'),
      ...{ action, since },
    };
    const { data, page } = await client.ask({ method: 'GET', path: ['events'], query, expects: Type.Array(anyEvent) });
    show(data, [...(data.length === 0 ? [] : eventTable(data)), pageLine(data.length, 'event', page)]);
  });
  return events;
}

function eventTable(events: readonly Static<typeof anyEvent>[]): string[] {
  return tableLines(
    ['AT', 'ACTOR', 'ACTION', 'MERCHANT', 'KEYID', 'CHANGED'],
    events.map(({ at, actor, action, merchantId, keyId, after }) => {
      return [at, actor, action, merchantId, keyId ?? '', changedText(action, after ?? {})];
    }),
    { wrap: ['CHANGED'] },
  );
}

function changedText(action: string, after: Readonly<Record<string, unknown>>): string {
  if (action === 'keys.imported') return `${String(after.keys)} keys`;
  if (action === 'record.forged') return `${String(after.record)} (${String(after.cause)})`;
  return action === 'merchant.changed' ? Object.keys(after).join(' ') : '';
}
