import { KeyStoreUnavailable } from '../../../gateway/key-store.js';
import { setCommand } from '../calls.js';
import type { AcknowledgementText } from '../records-link.js';
import type { ClusterMaster } from './cluster-master.js';
import type { ClusterMasters } from './cluster-masters.js';
import { slotOf } from './hash-slots.js';

/** A command for one Redis key. The hash slot of the key determines the master that receives the command. */
export interface NamedCall {
  readonly name: string;
  readonly command: readonly string[];
  /** Whether a string reply is returned as a Buffer; otherwise it is returned as a string. */
  readonly inBytes?: boolean;
}

/**
 * Replaces the error reply to one command with a result, for example if a value has the wrong type.
 * @throws the error itself if no result can replace it
 */
type Rescue = (error: unknown) => unknown;

/**
 * Thrown after a MOVED error: the slot no longer belongs to the master that the confirmed slot map names. The command
 * can be retried after all masters have confirmed a new map.
 */
export class SlotMoved extends KeyStoreUnavailable {
  constructor() {
    super('a slot of the Cluster has moved to another master');
    this.name = 'SlotMoved';
  }
}

const callsAtATime = 500;
const asking = { command: ['ASKING'] };

/**
 * Sends a command to the master of the key's hash slot, and returns the reply. While the slot migrates, follows an ASK
 * redirection, but only to a master to which this process is connected.
 * @throws SlotMoved
 * @throws Error if the master does not reply or refuses the command
 */
export async function callOne(masters: ClusterMasters, call: NamedCall): Promise<unknown> {
  const { name, command } = call;
  const [verb = '', ...args] = command;
  try {
    return await masters.owner(slotOf(name)).commands.call(verb, ...args);
  } catch (error) {
    return follow(masters, call, error);
  }
}

/**
 * Sends each command to the master of its slot, in batches. The replies have the order of the calls. If the promise
 * rejects, some commands may have been executed.
 * @param rescue replaces error replies with results; omitted: an error reply rejects the promise
 */
export async function callEach(
  masters: ClusterMasters,
  calls: readonly NamedCall[],
  rescue?: Rescue,
): Promise<unknown[]> {
  const replies = new Array<unknown>(calls.length);
  const indexesOf = new Map<ClusterMaster, number[]>();
  calls.forEach(({ name }, index) => {
    const owner = masters.owner(slotOf(name));
    const indexes = indexesOf.get(owner);
    if (indexes === undefined) indexesOf.set(owner, [index]);
    else indexes.push(index);
  });
  const each = [...indexesOf].map(async ([master, indexes]) => {
    for (let start = 0; start < indexes.length; start += callsAtATime) {
      const batch = indexes.slice(start, start + callsAtATime);
      const results = await pipelined(
        master,
        batch.map((index) => calls[index]),
      );
      for (const [at, [error, reply]] of results.entries()) {
        const index = batch[at] ?? 0;
        const followed = error === null ? reply : follow(masters, calls[index], error);
        replies[index] = await (followed instanceof Promise && rescue !== undefined
          ? followed.catch(rescue)
          : followed);
      }
    }
  });
  await Promise.all(each);
  return replies;
}

/**
 * Stores each text under its Redis key, with an expiry (PX).
 * @throws Error if a command fails; other texts may have been written
 */
export function writeEach(masters: ClusterMasters, texts: readonly AcknowledgementText[]): Promise<unknown[]> {
  return callEach(masters, texts.map(setCommand));
}

/** Returns the reply if it is a string; null for any other reply. */
export function stringReply(reply: unknown): string | null {
  return typeof reply === 'string' ? reply : null;
}

async function follow(masters: ClusterMasters, call: NamedCall | undefined, error: unknown): Promise<unknown> {
  const [kind, , place = ''] = error instanceof Error ? error.message.split(' ') : [];
  if (kind === 'MOVED') {
    masters.markUnverified();
    throw new SlotMoved();
  }
  if (kind !== 'ASK') throw error;
  const target = masters.all.find((master) => master.isAt(place));
  // A record of an unconnected node must not be cached, because that node sends no invalidation messages to this
  // process.
  if (target === undefined)
    throw new Error('a slot of the Cluster is migrating to a node to which this process is not connected yet');
  const [, [failure, reply] = [null, null]] = await pipelined(target, [asking, call]);
  if (failure !== null) throw failure;
  return reply;
}

async function pipelined(
  { commands }: ClusterMaster,
  batch: readonly (Omit<NamedCall, 'name'> | undefined)[],
): Promise<[Error | null, unknown][]> {
  const pipeline = commands.pipeline();
  for (const call of batch) {
    const [verb = '', ...args] = call?.command ?? [];
    if (call?.inBytes === true) pipeline.callBuffer(verb, ...args);
    else pipeline.call(verb, ...args);
  }
  return (await pipeline.exec()) ?? [];
}
