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

/** The checkpoints that the registry has stored, the keys that verify them, and the registry's list of checkpoints. */
export interface RegistryCheckpoints {
  /**
   * The checkpoints in `list`, and the newest checkpoint of each run (log of one gateway process), in the line format
   * of a checkpoint file.
   */
  readonly lines: readonly RawLine[];
  readonly keys: readonly PinnedKey[];
  /** Names of gateway instances whose key no administrator has confirmed yet. */
  readonly unconfirmed: readonly string[];
  /** The current public key that verifies the registry's receipts (signatures that it stored a checkpoint). */
  readonly receiptKey: NoteKey;
  readonly list: WitnessedList;
  /** How the list differs from its current signed head (length and Merkle root); null if they match. */
  readonly problem: string | null;
}

const perPage = '100';

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
 * Fetches all checkpoints and keys from the registry.
 * @param formerKeys earlier public keys that verify the registry's receipts (signatures that it stored a checkpoint)
 * @throws OperatorError
 */
export async function fetchRegistryCheckpoints(
  { registry, tokenFile, caFile, config }: RegistryOptions,
  formerKeys: readonly NoteKey[],
  err: CommandIo['err'],
  env: Environment = process.env,
): Promise<RegistryCheckpoints> {
  const client = new AdminClient(await accessOf({ address: registry, tokenFile, caFile, config }, env, registryPeer));
  const all = async <Schema extends TSchema>(
    path: string,
    schema: Schema,
    query: Record<string, string> = {},
  ): Promise<Static<Schema>[]> => {
    const items: Static<Schema>[] = [];
    for (let page = 1; ; page += 1) {
      const request = { query: { ...query, page: String(page), per_page: perPage }, expects: Type.Array(schema) };
      const { data, page: position } = await client.ask({ method: 'GET', path: [path], ...request });
      items.push(...data);
      if (items.length >= (position?.total_records ?? 0) || data.length === 0) return items;
      if (page % 100 === 0) err(`${items.length} of ${position?.total_records ?? 0} checkpoints fetched\n`);
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
      lines: [...listed, ...ofRuns].map(({ note }, index) => ({
        ...{ file: registryWord, number: index + 1, bytes: Buffer.from(JSON.stringify({ note })), ended: true },
      })),
      keys: keys.map(({ publicKey, from, to }) => ({
        ...{ key: parseKey(publicKey), from: Date.parse(from), to: to === null ? Infinity : Date.parse(to) },
      })),
      unconfirmed: keys.filter(({ confirmedAt }) => confirmedAt === null).map(({ name }) => name),
      ...{ receiptKey, list },
      problem: list.unlike(witness.head),
    };
  } catch (error) {
    if (!(error instanceof InvalidNote)) throw error;
    throw new OperatorError(`The registry returned an invalid key: ${error.message}.`, { cause: error });
  }
}
