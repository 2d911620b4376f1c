import { Command } from 'commander';
import { counted } from '../../../audit/finding.js';
import { eventSchema } from '../../../registry/events/schema.js';
import Type, { type Static } from '../../../typebox/typebox.js';
import type { CommandIo } from '../../command-io.js';
import { administer } from '../admin-call.js';
import { pageLine, pageOptions, type PageOptions, pageQuery } from '../arguments.js';
import { eventsExportCommand } from './export.js';
import { type FilterOptions, filterOptions, filterQuery } from './filters.js';
import { eventsVerifyCommand } from './verify.js';
import type { Environment } from '../peer.js';
import { tableLines } from '../table.js';

/** Schema of an event with any action, because a newer registry can have actions that this version does not know. */
const anyEvent = Type.Object({ ...eventSchema.properties, action: Type.String() });

/** Creates the commands `events list`, `export` and `verify`. */
export function eventsCommand(io: CommandIo, env: Environment = process.env): Command {
  const events = new Command('events').description('show the audit trail: who changed what, and when');
  const list = events.command('list').description('list events, newest first: who changed what, and when');
  administer<PageOptions & FilterOptions>(
    pageOptions(filterOptions(list)),
    { io, env },
    async ({ client, options, show }) => {
      const query = { ...pageQuery(options), ...filterQuery(options) };
      const { data, page } = await client.ask({
        method: 'GET',
        path: ['events'],
        query,
        expects: Type.Array(anyEvent),
      });
      show(data, [...(data.length === 0 ? [] : eventTable(data)), pageLine(data.length, 'event', page)]);
    },
  );
  eventsExportCommand(events, { io, env });
  eventsVerifyCommand(events, { io, env });
  return events;
}

function eventTable(events: readonly Static<typeof anyEvent>[]): string[] {
  return tableLines(
    ['AT', 'WHO', 'ACTION', 'MERCHANT', 'KEYID', 'FROM', 'CHANGED'],
    events.map((event) => {
      const { at, action, merchantId, keyId, source, after, reason } = event;
      const changed = [changedText(action, after ?? {}), reason ?? ''].filter((text) => text !== '').join(': ');
      return [at, whoOf(event), action, merchantId, keyId ?? '', source ?? '', changed];
    }),
    { wrap: ['WHO', 'CHANGED'] },
  );
}

/**
 * Returns the name of the person or program that caused an event. Marks a name that no authentication confirms: a name
 * that the client only claimed, or a name in an event of an earlier release.
 */
function whoOf({ actor, proof, claimed }: Static<typeof anyEvent>): string {
  if (typeof claimed === 'string') return `${actor} (claims ${claimed})`;
  return typeof proof === 'string' ? actor : `${actor} (name not verified)`;
}

function changedText(action: string, after: Readonly<Record<string, unknown>>): string {
  if (action === 'keys.imported') return counted(Number(after.keys), 'key');
  if (action === 'attempt.refused')
    return `${String(after.method)} ${String(after.route)} (needs ${String(after.needs)})`;
  if (action === 'sign-in.failed') return String(after.cause);
  if (action === 'events.exported') return exportedText(after);
  if (action === 'merchant.read') return String(after.what);
  if (/^(?:administrator|token)\./.test(action)) return String(after.name);
  if (action === 'record.forged') return `${String(after.record)} (${String(after.cause)})`;
  return action === 'merchant.changed' ? Object.keys(after).join(' ') : '';
}

/** Describes an export by its filter, and by the sequence number after which it starts if that is not 0. */
function exportedText({ filter, after }: Readonly<Record<string, unknown>>): string {
  const given = typeof filter === 'object' && filter !== null ? Object.entries(filter) : [];
  return [...given, ...(after === 0 ? [] : [['after', after]])]
    .map(([name, value]) => `${String(name)}=${String(value)}`)
    .join(' ');
}
