import { say } from '../command-line.js';
import { Teardowns } from '../../deployment/teardowns.js';
import type { Subject } from '../subjects/subject.js';
import { Contender, type Round } from './contender.js';
import { openPlace } from './place.js';
import type { Scenario } from './scenarios.js';

const mostWarmUps = 4;
const interruptedStatus = 130;
let isStopping = false;

/** The rounds of one subject in one scenario. */
export interface Measured {
  readonly subject: string;
  readonly rounds: readonly Round[];
  /** The reason why it dropped out; null if it did not. */
  readonly failure: string | null;
}

/** Number and length of the rounds, length of the warm-up, and number of connections. */
export interface Extent {
  readonly rounds: number;
  readonly seconds: number;
  readonly warmUpSeconds: number;
  readonly connections: number;
}

/** Starts new processes of the subjects. In each round, measures the subjects one after another. */
export async function measure(scenario: Scenario, subjects: readonly Subject[], extent: Extent): Promise<Measured[]> {
  const t = new Teardowns();
  const stop = (): void => {
    isStopping = true;
    // Otherwise the started programs would outlive this process.
    void t.close().finally(() => process.exit(interruptedStatus));
  };
  process.once('SIGINT', stop).once('SIGTERM', stop);
  try {
    const place = await openPlace(t, scenario.keys);
    const contenders: Contender[] = [];
    for (const subject of subjects) {
      const contender = await Contender.start(subject, scenario, place, extent.connections);
      contenders.push(contender);
      await unlessFailed(contender, () => warmUp(contender, scenario, extent.warmUpSeconds));
    }
    for (let round = 1; round <= extent.rounds; round += 1) {
      for (const contender of contenders) {
        await unlessFailed(contender, async () => contender.rounds.push(await contender.round(extent.seconds)));
      }
      say(`${scenario.name}, round ${round}, CPU µs per request: ${contenders.map(lastCpu).join(', ')}`);
    }
    return contenders.map(({ name, rounds, failure }) => ({ subject: name, rounds, failure }));
  } finally {
    process.off('SIGINT', stop).off('SIGTERM', stop);
    await t.close();
  }
}

/** Warms up by time and number of requests: on a busy machine the time alone would mean few requests. */
async function warmUp(contender: Contender, { transport }: Scenario, seconds: number): Promise<void> {
  const enough = transport === 'tls-new' || transport === 'tls-resumed' ? 2_000 : 20_000;
  let requests = 0;
  for (let turn = 0; turn < mostWarmUps && requests < enough; turn += 1) {
    requests += (await contender.round(seconds)).requests;
  }
}

/** Runs work for a subject; a subject that fails drops out, and the run continues with the others. */
async function unlessFailed(contender: Contender, work: () => Promise<unknown>): Promise<void> {
  if (contender.failure !== null) return;
  try {
    await work();
  } catch (error) {
    // A failure during shutdown means nothing: the process is about to end.
    if (isStopping) await new Promise(() => undefined);
    contender.failure = (error as Error).message;
    say(`${contender.name} drops out: ${contender.failure}`);
  }
}

function lastCpu({ name, rounds, failure }: Contender): string {
  return `${name} ${failure === null ? (rounds.at(-1)?.cpu.toFixed(1) ?? '') : 'dropped out'}`;
}
