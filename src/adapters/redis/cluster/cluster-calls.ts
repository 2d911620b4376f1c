import { KeyStoreUnavailable } from '../../../gateway/ports.js';
import { setCommand } from '../calls.js';
import type { AcknowledgementText } from '../records-link.js';
import type { ClusterMaster } from './cluster-master.js';
import type { ClusterMasters } from './cluster-masters.js';
import { slotOf } from './hash-slots.js';

/** A command about one name, which decides where it goes. */
export interface NamedCall {
  readonly name: string;
  readonly command: readonly string[];
  /** Whether the answer is to be a Buffer where it would be a text. */
  readonly inBytes?: boolean;
}

/** Stands for an answer that is an error of its own, and none of the store. @throws the error where it is one of the store */
type Rescue = (error: unknown) => unknown;

/** The slot has another owner than the map says; when the masters have agreed on a new one, it can be tried again. */
export class SlotMoved extends KeyStoreUnavailable {
  constructor() {
    super('a slot of the Cluster has another master now');
    this.name = 'SlotMoved';
  }
}

const callsAtATime = 500;
const asking = { command: ['ASKING'] };

/**
 * Asks the master of the name's slot. While the slot is being moved, a name that has gone ahead is asked for where it is.
 * @throws SlotMoved
 * @throws Error where it cannot be asked, or refuses
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

/** Asks about many names, in bounded batches; the answers are in the order of the calls. Some may have had effect when it rejects. */
export async function callEach(
  masters: ClusterMasters,
  calls: readonly NamedCall[],
  rescue?: Rescue,
): Promise<unknown[]> {
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
        batch.map((index) => calls[index]),
      );
      for (const [at, [error, answer]] of results.entries()) {
        const index = batch[at] ?? 0;
        const followed = error === null ? answer : follow(masters, calls[index], error);
        answers[index] = await (followed instanceof Promise && rescue !== undefined
          ? followed.catch(rescue)
          : followed);
      }
    }
  });
  await Promise.all(each);
  return answers;
}

/** Writes texts that end by themselves. @throws Error as `callEach` */
export function writeEach(masters: ClusterMasters, texts: readonly AcknowledgementText[]): Promise<unknown[]> {
  return callEach(masters, texts.map(setCommand));
}

/** A text, or null for none. */
export function asText(answer: unknown): string | null {
  return typeof answer === 'string' ? answer : null;
}

async function follow(masters: ClusterMasters, call: NamedCall | undefined, error: unknown): Promise<unknown> {
  const [kind, , place = ''] = error instanceof Error ? error.message.split(' ') : [];
  if (kind === 'MOVED') {
    masters.doubt();
    throw new SlotMoved();
  }
  if (kind !== 'ASK') throw error;
  const target = masters.all.find((master) => master.isAt(place));
  // What is not listened to must not be believed.
  if (target === undefined) throw new Error('a slot is being moved to a node that is not known yet');
  const [, [failure, answer] = [null, null]] = await inOneGo(target, [asking, call]);
  if (failure !== null) throw failure;
  return answer;
}

async function inOneGo(
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
