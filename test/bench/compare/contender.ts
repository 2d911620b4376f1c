import { truncateSync } from 'node:fs';
import { setTimeout as wait } from 'node:timers/promises';
import type { Target } from '../load/connection.js';
import { Connections } from '../load/connections.js';
import { openLoad } from '../load/open-load.js';
import type { StartedSubject, Subject } from '../subjects/subject.js';
import type { Place } from './place.js';
import type { Scenario } from './scenarios.js';
import { quantileOf } from './statistics.js';
import { usageOf } from './usage.js';

/** The figures of one subject (a measured program) in one round. */
export interface Round {
  readonly requests: number;
  readonly perSecond: number;
  /** CPU time of the subject, in microseconds per request. */
  readonly cpu: number;
  readonly residentMegabytes: number;
  /** Milliseconds; null if not measured. */
  readonly latency: { readonly p50: number; readonly p99: number; readonly p999: number } | null;
}

/** Pause after the load: log writes and cleanup after a response still count as the subject's CPU time. */
const settleMilliseconds = 50;
const readySeconds = 60;

/** A subject that takes part in a scenario. */
export class Contender {
  readonly name: string;
  readonly rounds: Round[] = [];
  /** The reason why it has dropped out; null if it has not. */
  failure: string | null = null;
  readonly #scenario: Scenario;
  readonly #started: StartedSubject;
  readonly #target: Target;
  readonly #next: () => string;
  readonly #connections: number;

  private constructor(
    subject: Subject,
    scenario: Scenario,
    started: StartedSubject,
    { ca }: Place,
    connections: number,
  ) {
    this.name = subject.name;
    this.#scenario = scenario;
    this.#started = started;
    this.#target =
      scenario.transport === 'plain' ? { port: started.httpPort, ca: null } : { port: started.httpsPort, ca };
    this.#next = scenario.requests(subject.keys ?? scenario.keys);
    this.#connections = connections;
  }

  /** Starts a subject and waits until it responds with the expected status. */
  static async start(subject: Subject, scenario: Scenario, place: Place, connections: number): Promise<Contender> {
    const keys = subject.keys ?? scenario.keys;
    const started = await subject.start({ ...place, keys });
    const contender = new Contender(subject, scenario, started, place, connections);
    await contender.#untilReady();
    return contender;
  }

  /** Runs the load for this time; returns the figures of the subject. */
  async round(seconds: number): Promise<Round> {
    const { transport, perSecond, status } = this.#scenario;
    const { pid, logFile, disturb } = this.#started;
    // Open new connections for each round: servers close connections that idle during the turns of other subjects.
    const load = await openLoad(transport, this.#target, this.#connections, perSecond);
    const stop = disturb?.();
    try {
      const before = usageOf(pid);
      const { requests, seconds: taken, latencies } = await load.run({ next: this.#next, status, seconds });
      await wait(settleMilliseconds);
      const after = usageOf(pid);
      const sorted = latencies.toSorted((a, b) => a - b);
      const at = (share: number): number => quantileOf(sorted, share);
      return {
        requests,
        perSecond: requests / taken,
        cpu: (after.cpuMicroseconds - before.cpuMicroseconds) / requests,
        residentMegabytes: after.residentMegabytes,
        latency: sorted.length === 0 ? null : { p50: at(0.5), p99: at(0.99), p999: at(0.999) },
      };
    } finally {
      await stop?.();
      load.close();
      // The access logs of many rounds would fill the disk.
      if (logFile !== null) truncateSync(logFile);
    }
  }

  /** Polls for the expected status: some subjects listen before they are ready. */
  async #untilReady(): Promise<void> {
    const { status: expected } = this.#scenario;
    const deadline = performance.now() + readySeconds * 1000;
    for (;;) {
      const status = await askOnce(this.#target, this.#next()).catch((error: unknown) => (error as Error).message);
      if (status === expected) return;
      if (performance.now() > deadline) throw new Error(`not ready: ${status} in place of ${expected}`);
      await wait(20);
    }
  }
}

async function askOnce(target: Target, request: string): Promise<number> {
  const connections = await Connections.open(target, 1);
  try {
    let status = 0;
    await connections.use((done) => {
      connections.all[0]?.send(request, (received) => {
        status = received;
        done();
      });
    });
    return status;
  } finally {
    connections.close();
  }
}
