import { type Command, InvalidArgumentError } from 'commander';
import { formerKeyOption, idIn, loggedIdIn } from '../arguments.js';

/** The options that filter events. */
export interface FilterOptions {
  readonly seq?: string;
  readonly merchant?: string;
  readonly keyId?: string;
  readonly key?: string;
  readonly action?: string;
  readonly who?: string;
  readonly administrator?: string;
  readonly proof?: string;
  readonly claimed?: string;
  readonly source?: string;
  readonly request?: string;
  readonly givenReason?: string;
  readonly revision?: string;
  readonly since?: string;
  readonly until?: string;
}

/**
 * Adds the options that filter events. The filters by actor and reason are not called `--actor` and `--reason`, because
 * all administration commands use these names for the actor and reason of the user's own request.
 */
export function filterOptions(command: Command): Command {
  return command
    .option('--merchant <id>', 'only events of this merchant')
    .option('--key-id <keyid>', 'only events of this key')
    .addOption(formerKeyOption())
    .option('--action <action>', 'only events with this action, e.g. key.revoked')
    .option('--who <name>', 'only events of the administrator with this name', loggedIdIn)
    .option('--administrator <id>', 'only events of the administrator with this id', loggedIdIn)
    .option(
      '--proof <proof>',
      'only events whose author authenticated with this credential: bootstrap (the shared token), token:ID or session:ID, where ID is the id of the token or session',
      loggedIdIn,
    )
    .option(
      '--claimed <name>',
      'only events whose author used the shared token and gave this name with --actor; such a name is not verified',
      loggedIdIn,
    )
    .option('--source <address>', 'only events from this IP address', loggedIdIn)
    .option('--request <id>', 'only events of the request with this id (x-request-id)', loggedIdIn)
    .option('--given-reason <text>', 'only events whose author gave exactly this reason', loggedIdIn)
    .option(
      '--revision <number>',
      'only events of the change with this revision (the number that the registry gave the change)',
      loggedIdIn,
    )
    .option('--seq <number>', 'only the event with this sequence number', loggedIdIn)
    .option('--since <time>', 'only events since this time, e.g. 2026-01-31T12:00:00Z', loggedIdIn)
    .option('--until <time>', 'only events before this time', loggedIdIn);
}

/** Converts the filter options to query parameters of the admin API. @throws WrongUsage for an invalid id */
export function filterQuery(options: FilterOptions): Readonly<Record<string, string | undefined>> {
  const { merchant, action, who, administrator, proof, claimed, source, request, givenReason } = options;
  const { seq, revision, since, until } = options;
  const keyId = options.keyId ?? options.key;
  return {
    merchantId: merchant === undefined ? undefined : idIn(merchant, 'merchant'),
    keyId: keyId === undefined ? undefined : idIn(keyId, 'key'),
    ...{ action, actor: who, administratorId: administrator, proof, claimed, source },
    ...{ requestId: request, reason: givenReason, revision, seq, since, until },
  };
}

const sequenceForm = /^(?:0|[1-9][0-9]{0,14})$/;

/** Parses the sequence number of an event. */
export function sequenceIn(value: string): number {
  if (sequenceForm.test(value)) return Number(value);
  throw new InvalidArgumentError(
    'Expected the sequence number of an event, such as the number that "merchant-gateway events export" prints for --after.',
  );
}
