import { KeyStoreUnavailable } from '../../../gateway/ports.js';
import type { ClusterMaster } from './cluster-master.js';
import type { ClusterMasters } from './cluster-masters.js';
import { slotOf } from './hash-slots.js';

/** A command about one name, which decides where it goes. */
export interface NamedCall {
  readonly name: string;
  readonly command: readonly string[];
}

/** The slot has another owner than the map says; when the masters have agreed on a new one, it can be tried again. */
export class SlotMoved extends KeyStoreUnavailable {
  constructor() {
    super('a slot of the Cluster has another master now');
    this.name = 'SlotMoved';
  }
}

const callsAtATime = 500;

/**
 * Asks the master of the name's slot. While the slot is being moved, a name that has gone ahead is asked for where it is.
 * @throws SlotMoved
 * @throws Error where it cannot be asked, or refuses
 */
export async function callOne(masters: ClusterMasters, { name, command }: NamedCall): Promise<unknown> {
  const [verb = '', ...args] = command;
  try {
    return await masters.owner(slotOf(name)).commands.call(verb, ...args);
  } catch (error) {
    return follow(masters, command, error);
  }
}

/** Asks about many names, in bounded batches; the answers are in the order of the calls. Some may have had effect when it rejects. */
export async function callEach(masters: ClusterMasters, calls: readonly NamedCall[]): Promise<unknown[]> {
  const answers = new Array<unknown>(calls.length);
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
      const results = await inOneGo(
        master,
        batch.map((index) => calls[index]?.command ?? []),
      );
      for (const [at, [error, answer]] of results.entries()) {
        const index = batch[at] ?? 0;
        answers[index] = error === null ? answer : await follow(masters, calls[index]?.command ?? [], error);
      }
    }
  });
  await Promise.all(each);
  return answers;
}

/** Reads texts, in the order of the names. */
export async function readEach(masters: ClusterMasters, names: readonly string[]): Promise<(string | null)[]> {
  const calls = names.map((name) => ({ name, command: ['GET', name] }));
  return (await callEach(masters, calls)).map(asText);
}

/** A text, or null for none. */
export function asText(answer: unknown): string | null {
  return typeof answer === 'string' ? answer : null;
}

async function follow(masters: ClusterMasters, command: readonly string[], error: unknown): Promise<unknown> {
  const [kind, , place = ''] = error instanceof Error ? error.message.split(' ') : [];
  if (kind === 'MOVED') {
    masters.doubt();
    throw new SlotMoved();
  }
  if (kind !== 'ASK') throw error;
  const target = masters.all.find((master) => master.isAt(place));
  // What is not listened to must not be believed.
  if (target === undefined) throw new Error('a slot is being moved to a node that is not known yet');
  const [, [failure, answer] = [null, null]] = await inOneGo(target, [['ASKING'], command]);
  if (failure !== null) throw failure;
  return answer;
}

async function inOneGo(
  { commands }: ClusterMaster,
  batch: readonly (readonly string[])[],
): Promise<[Error | null, unknown][]> {
  const pipeline = commands.pipeline();
  for (const [verb = '', ...args] of batch) pipeline.call(verb, ...args);
  return (await pipeline.exec()) ?? [];
}
