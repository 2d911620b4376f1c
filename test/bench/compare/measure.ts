import { truncateSync } from 'node:fs';
import { setTimeout as wait } from 'node:timers/promises';
import { say } from '../command-line.js';
import { Teardowns } from '../deployment.js';
import { openClosedLoop } from '../load/closed-loop.js';
import type { Target } from '../load/connection.js';
import { Connections } from '../load/connections.js';
import { openFixedRate } from '../load/fixed-rate.js';
import type { Load } from '../load/load.js';
import type { StartedSubject, Subject } from '../subjects/subject.js';
import { quantileOf } from './statistics.js';
import { openPlace, type Place } from './place.js';
import type { Scenario } from './scenarios.js';
import { usageOf } from './usage.js';

/** What one subject did in one round. */
export interface Round {
  readonly requests: number;
  readonly perSecond: number;
  /** CPU time of the subject, in microseconds a request. */
  readonly cpu: number;
  readonly residentMebibytes: number;
  /** Milliseconds; null where they were not measured. */
  readonly latency: { readonly p50: number; readonly p99: number; readonly p999: number } | null;
}

/** The rounds of one subject in one scenario. */
export interface Measured {
  readonly subject: string;
  readonly rounds: readonly Round[];
}

/** How long and how often. */
export interface Extent {
  readonly rounds: number;
  readonly seconds: number;
  readonly warmUpSeconds: number;
  readonly connections: number;
}

/** What a subject writes or tidies up behind an answer still belongs to it. */
const settleMilliseconds = 50;
const readySeconds = 60;

interface Contender {
  readonly name: string;
  readonly started: StartedSubject;
  readonly target: Target;
  readonly rounds: Round[];
}

/** Starts the subjects anew, and measures them by turns. */
export async function measure(scenario: Scenario, subjects: readonly Subject[], extent: Extent): Promise<Measured[]> {
  const t = new Teardowns();
  try {
    const place = await openPlace(t, scenario.keys);
    const next = scenario.requests(scenario.keys);
    const contenders: Contender[] = [];
    for (const subject of subjects) {
      const started = await subject.start(place, { http2: false });
      const target = targetOf(scenario, started, place);
      await untilAnswered(target, next, scenario.status);
      const contender = { name: subject.name, started, target, rounds: [] };
      contenders.push(contender);
      await oneRound(contender, scenario, next, extent.connections, extent.warmUpSeconds);
    }
    for (let round = 1; round <= extent.rounds; round += 1) {
      for (const contender of contenders) {
        contender.rounds.push(await oneRound(contender, scenario, next, extent.connections, extent.seconds));
      }
      const figures = contenders.map(({ name, rounds }) => `${name} ${rounds.at(-1)?.cpu.toFixed(1)}`);
      say(`${scenario.name}, round ${round}: CPU µs a request: ${figures.join(', ')}`);
    }
    return contenders.map(({ name, rounds }) => ({ subject: name, rounds }));
  } finally {
    await t.close();
  }
}

function targetOf({ transport }: Scenario, { httpPort, httpsPort }: StartedSubject, { ca }: Place): Target {
  return transport === 'plain' ? { port: httpPort, ca: null } : { port: httpsPort, ca };
}

function openLoad({ perSecond }: Scenario, target: Target, connections: number): Promise<Load> {
  return perSecond === null ? openClosedLoop(target, connections) : openFixedRate(target, connections, perSecond);
}

/** Some listen before they are ready. */
async function untilAnswered(target: Target, next: () => string, expected: number): Promise<void> {
  const deadline = performance.now() + readySeconds * 1000;
  for (;;) {
    const status = await askOnce(target, next).catch((error: unknown) => (error as Error).message);
    if (status === expected) return;
    if (performance.now() > deadline) throw new Error(`not ready: ${status} in place of ${expected}`);
    await wait(20);
  }
}

async function askOnce(target: Target, next: () => string): Promise<number> {
  const connections = await Connections.open(target, 1);
  let status = 0;
  await connections.use((done) => {
    connections.all[0]?.send(next(), (answered) => {
      status = answered;
      done();
    });
  });
  connections.close();
  return status;
}

async function oneRound(
  { started, target }: Contender,
  scenario: Scenario,
  next: () => string,
  connections: number,
  seconds: number,
): Promise<Round> {
  // Made anew for each round, because servers close what is idle while the others have their turn.
  const load = await openLoad(scenario, target, connections);
  const before = usageOf(started.pid);
  const { requests, seconds: taken, latencies } = await load.run({ next, status: scenario.status, seconds });
  await wait(settleMilliseconds);
  const after = usageOf(started.pid);
  load.close();
  // Logs of many rounds would fill the disk.
  if (started.logFile !== null) truncateSync(started.logFile);
  const sorted = latencies.toSorted((a, b) => a - b);
  const at = (share: number): number => quantileOf(sorted, share);
  return {
    requests,
    perSecond: requests / taken,
    cpu: (after.cpuMicroseconds - before.cpuMicroseconds) / requests,
    residentMebibytes: after.residentMebibytes,
    latency: sorted.length === 0 ? null : { p50: at(0.5), p99: at(0.99), p999: at(0.999) },
  };
}
