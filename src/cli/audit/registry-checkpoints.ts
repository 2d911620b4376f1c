import type { Command } from 'commander';
import type { RawLine } from '../../audit/log-lines.js';
import type { PinnedKey } from '../../audit/pinned-keys.js';
import { registryWord } from '../../audit/signed-runs.js';
import { WitnessedList } from '../../audit/witnessed-list.js';
import { OperatorError } from '../../config/operator-error.js';
import { InvalidNote, type NoteKey, parseKey } from '../../evidence/signed-note.js';
import { checkpointSchema, instanceKeySchema, witnessSchema } from '../../registry/checkpoints/schema.js';
import Type, { type Static, type TSchema } from '../../typebox/typebox.js';
import { accessOf } from '../admin/access.js';
import { AdminClient } from '../admin/admin-client.js';
import { type Environment, registryPeer } from '../admin/peer.js';
import type { CommandIo } from '../command-io.js';

/** Options that locate the registry, for commands that fetch its checkpoints. */
export interface RegistryOptions {
  readonly registry?: string;
  readonly tokenFile?: string;
  readonly caFile?: string;
  readonly config?: string;
}

/** Checkpoints from the registry, the keys that verify these checkpoints, and the registry's list of checkpoints. */
export interface RegistryCheckpoints {
  /**
   * The checkpoints in `list`, and the newest checkpoint of each run (lines of one process in one file), in the line format
   * of a checkpoint file.
   */
  readonly lines: readonly RawLine[];
  readonly keys: readonly PinnedKey[];
  /** Names of gateway instances whose key no administrator has confirmed yet. */
  readonly unconfirmed: readonly string[];
  /** The current public key that verifies receipts (the registry's signed statements that it stored a checkpoint). */
  readonly receiptKey: NoteKey;
  readonly list: WitnessedList;
  /** How the list differed from its signed head (length and Merkle root) when it was fetched; null if they matched. */
  readonly problem: string | null;
  /**
   * Fetches the checkpoints that the registry has received since the last fetch, and adds them to `list`.
   * @returns the added checkpoints, and again the newest checkpoint of each run, as lines of a checkpoint file
   * @throws OperatorError
   */
  later(): Promise<readonly RawLine[]>;
}

const perPage = 100;

/** Adds the options that locate the registry. */
export function registryOptions(command: Command): Command {
  return command
    .option(
      '--registry <url>',
      'address of the admin API (or MERCHANT_GATEWAY_REGISTRY), used with "--checkpoints registry"',
    )
    .option('--token-file <file>', 'file with your administrator token (or set MERCHANT_GATEWAY_TOKEN to the token)')
    .option('--ca-file <file>', 'PEM file with the CA certificate for an https address (or MERCHANT_GATEWAY_CA_FILE)');
}

/**
 * Fetches the keys, the list of checkpoints, and the newest checkpoint of each run (lines of one process in one file).
 * @param formerKeys earlier public keys that verify receipts (the registry's signed statements that it stored a
 *   checkpoint)
 * @param err prints the progress
 * @throws OperatorError
 * @throws WrongUsage if the token is missing, or the address or token is malformed
 */
export async function fetchRegistryCheckpoints(
  { registry, tokenFile, caFile, config }: RegistryOptions,
  formerKeys: readonly NoteKey[],
  err: CommandIo['err'],
  env: Environment = process.env,
): Promise<RegistryCheckpoints> {
  const open = async (): Promise<AdminClient> =>
    new AdminClient(await accessOf({ address: registry, tokenFile, caFile, config }, env, registryPeer));
  let client = await open();
  const all = async <Schema extends TSchema>(
    path: string,
    schema: Schema,
    query: Record<string, string> = {},
    known = 0,
  ): Promise<Static<Schema>[]> => {
    const items: Static<Schema>[] = [];
    const before = known - (known % perPage);
    for (let page = 1 + before / perPage; ; page += 1) {
      const pageQuery = { ...query, page: String(page), per_page: String(perPage) };
      const request = { query: pageQuery, expects: Type.Array(schema) };
      const { data, page: position } = await client.ask({ method: 'GET', path: [path], ...request });
      items.push(...data);
      const [fetched, total] = [before + items.length, position?.total_records ?? 0];
      if (fetched >= total || data.length === 0) return items.slice(known - before);
      if (page % 100 === 0) err(`${fetched} of ${total} checkpoints fetched\n`);
    }
  };
  const keys = await all('instance-keys', instanceKeySchema);
  // Read the signed head (length and Merkle root) before the list. The registry may append checkpoints in between; the
  // list still begins with the checkpoints that the head covers, so the two can be compared.
  const { data: witness } = await client.ask({ method: 'GET', path: ['checkpoints', 'head'], expects: witnessSchema });
  const listed = await all('checkpoints', checkpointSchema, { of: 'list' });
  const ofRuns = await all('checkpoints', checkpointSchema, { of: 'runs' });
  try {
    const receiptKey = parseKey(witness.publicKey);
    const list = new WitnessedList([receiptKey, ...formerKeys]);
    for (const { receivedAt, note } of listed) list.take(receivedAt, note);
    return {
      lines: linesOf([...listed, ...ofRuns]),
      keys: keys.map(({ publicKey, from, to }) => ({
        ...{ key: parseKey(publicKey), from: Date.parse(from), to: to === null ? Infinity : Date.parse(to) },
      })),
      unconfirmed: keys.filter(({ confirmedAt }) => confirmedAt === null).map(({ name }) => name),
      ...{ receiptKey, list },
      problem: list.unlike(witness.head),
      later: async () => {
        // Open a new client: the token of a sign-in is valid for at most 15 minutes, and reading a log can take longer.
        client = await open();
        const added = await all('checkpoints', checkpointSchema, { of: 'list' }, list.size);
        for (const { receivedAt, note } of added) list.take(receivedAt, note);
        return linesOf([...added, ...(await all('checkpoints', checkpointSchema, { of: 'runs' }))]);
      },
    };
  } catch (error) {
    if (!(error instanceof InvalidNote)) throw error;
    throw new OperatorError(`The registry returned an invalid key or checkpoint: ${error.message}.`, { cause: error });
  }
}

function linesOf(checkpoints: readonly { readonly note: string }[]): RawLine[] {
  return checkpoints.map(({ note }, index) => ({
    ...{ file: registryWord, number: index + 1, bytes: Buffer.from(JSON.stringify({ note })), ended: true },
  }));
}
