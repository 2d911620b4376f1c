import { open } from 'node:fs/promises';
import type { Deployment, GatewayProcess } from '../deployment/deployment.js';
import { residentMebibytes } from './resident-memory.js';
import { distributionOf, type Distribution } from './distribution.js';
import { benchKey } from './key-file.js';

const connections = 8;

interface Accepted {
  readonly times: readonly number[];
  /** Number of requests with known keys that did not get 200. Above 0, the machine is too busy for useful figures. */
  readonly refused: number;
}

/**
 * Sends requests with `keys` known keys on several connections for `milliseconds`. Returns the duration of each
 * accepted request in milliseconds, and the number of other responses.
 */
async function acceptedFor(gateway: GatewayProcess, keys: number, milliseconds: number): Promise<Accepted> {
  const end = performance.now() + milliseconds;
  const times: number[] = [];
  let [next, refused] = [0, 0];
  const loop = async (): Promise<void> => {
    while (performance.now() < end) {
      const key = benchKey((next += 1) % keys);
      const begun = performance.now();
      const status = await gateway.ask(key);
      if (status === 200) times.push(performance.now() - begun);
      else refused += 1;
    }
  };
  await Promise.all(Array.from({ length: connections }, loop));
  return { times, refused };
}

/** The effect of changes on concurrent requests. */
export interface BesideChanges {
  readonly changes: number;
  readonly without: Distribution;
  readonly with: Distribution;
  readonly requests: readonly [without: number, with_: number];
  readonly refused: number;
}

/** Measures accepted requests with and without concurrent changes, alternating every few seconds. */
export async function besideChanges(
  { admin }: Pick<Deployment, 'admin'>,
  gateway: GatewayProcess,
  { seconds, perSecond, keys }: { readonly seconds: number; readonly perSecond: number; readonly keys: number },
): Promise<BesideChanges> {
  const turns = 5;
  const turnMilliseconds = (seconds * 1000) / turns;
  const times: [number[], number[]] = [[], []];
  let [changes, refused] = [0, 0];
  const ask = async (into: number[]): Promise<void> => {
    const accepted = await acceptedFor(gateway, keys, turnMilliseconds);
    into.push(...accepted.times);
    refused += accepted.refused;
  };
  await acceptedFor(gateway, keys, 2000);
  for (let turn = 0; turn < turns * 2; turn += 1) {
    if (turn % 2 === 0) {
      await ask(times[0]);
      continue;
    }
    const asked: Promise<unknown>[] = [];
    const timer = setInterval(() => {
      changes += 1;
      asked.push(admin('PATCH', `/merchants/m_${changes % 10}`, { name: `Merchant ${changes}` }));
    }, 1000 / perSecond);
    await ask(times[1]);
    clearInterval(timer);
    await Promise.all(asked);
  }
  const [without, with_] = times;
  return {
    changes,
    without: distributionOf(without),
    with: distributionOf(with_),
    requests: [without.length, with_.length],
    refused,
  };
}

/** The effect of a flood of unknown keys on a gateway. */
export interface Flooded {
  readonly unknown: number;
  readonly refused: number;
  readonly mebibytes: readonly [before: number | null, after: number | null];
  /** How many of the known keys used before are still in the cache. */
  readonly hits: string;
}

/**
 * Sends requests with `known` known keys, then with `unknown` different unknown keys, and then with the known keys
 * again. Returns how the unknown keys affected the gateway.
 */
export async function floodWithUnknown(
  gateway: GatewayProcess,
  { unknown, known }: { readonly unknown: number; readonly known: number },
): Promise<Flooded> {
  for (let number = 0; number < known; number += 1) await gateway.ask(benchKey(number));
  const before = await residentMebibytes(gateway.pid, 'VmRSS');
  let [next, refused] = [0, 0];
  const loop = async (): Promise<void> => {
    while (next < unknown) {
      const key = `svc_live_unknown${(next += 1)}`;
      if ((await gateway.ask(key)) === 401) refused += 1;
    }
  };
  await Promise.all(Array.from({ length: connections * 4 }, loop));
  const after = await residentMebibytes(gateway.pid, 'VmRSS');
  for (let number = 0; number < known; number += 1) await gateway.ask(benchKey(number));
  const sources = await lastSources(gateway.accessLog, known);
  const hits = sources.filter((source) => source === 'cache').length;
  return { unknown, refused, mebibytes: [before, after], hits: `${hits} of ${known}` };
}

/**
 * Where the gateway found the records of the last `count` accepted requests of an access log, for example `cache`.
 * Waits until all their lines are written, at most 30 seconds.
 */
async function lastSources(file: string, count: number): Promise<string[]> {
  const mostBytes = count * 2048;
  for (const deadline = performance.now() + 30_000; ;) {
    const handle = await open(file);
    const { size } = await handle.stat();
    const { buffer, bytesRead } = await handle.read(
      Buffer.alloc(mostBytes),
      0,
      mostBytes,
      Math.max(size - mostBytes, 0),
    );
    await handle.close();
    const lines = buffer
      .toString('utf8', 0, bytesRead)
      .split('\n')
      .slice(-count - 1, -1);
    const accepted = lines.filter((line) => line.includes('"code":"accepted"'));
    if (accepted.length === count || performance.now() > deadline) {
      return accepted.map((line) => /"source":"(\w+)"/.exec(line)?.[1] ?? 'none');
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** The text of a GET request with the key of this number. */
export function requestWith(keyNumber: number): string {
  return `GET /v1/transactions HTTP/1.1\r\nhost: localhost\r\nx-api-key: ${benchKey(keyNumber)}\r\n\r\n`;
}
