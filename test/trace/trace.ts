import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { Profiler } from 'node:inspector';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import tls from 'node:tls';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { startBenchDeployment } from '../bench/deployment.js';
import type { GatewayProcess } from '../deployment/deployment.js';
import type { Teardowns } from '../deployment/teardowns.js';
import { benchKey } from '../bench/key-file.js';
import { ResponseReader } from '../bench/load/response-reader.js';
import { benchKeyId, seedKeys } from '../bench/seed.js';
import type { Place, Question } from './probe.js';

/** A function that ran in every request. */
export interface RanFunction {
  /** Source file, relative to src; for the proxy plugin relative to node_modules. */
  readonly file: string;
  readonly name: string;
  /** Number of executed lines in the built file, without nested functions. */
  readonly lines: number;
  /** Average calls per request. */
  readonly calls: number;
}

/** The functions that ran in identical requests, ordered by their first call. */
export interface Trace {
  readonly title: string;
  readonly functions: readonly RanFunction[];
}

/** A kind of request to trace, on one connection after a warm-up with the same kind. */
interface Way {
  readonly title: string;
  readonly status: number;
  readonly bytes: string;
}

const requests = 20;
const warmUps = 50;
const measurements = 25;
const head = (line: string, key: string): string => `${line} HTTP/1.1\r\nhost: localhost\r\nx-api-key: ${key}\r\n`;
const body = '{"amount":1250,"currency":"NGN"}';

/** The traced kinds of requests, by name. */
export const ways: Readonly<Record<string, Way>> = {
  get: { title: 'an accepted GET', status: 200, bytes: `${head('GET /v1/transactions', benchKey(1))}\r\n` },
  denied: {
    ...{ title: 'a 401 for an unknown key', status: 401 },
    bytes: `${head('GET /v1/transactions', benchKey(900))}\r\n`,
  },
  post: {
    ...{ title: 'an accepted POST', status: 200 },
    bytes: `${head('POST /v1/transactions', benchKey(1))}content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  },
};

const probe = pathToFileURL(path.resolve('dist-test/test/trace/probe.js')).href;
/**
 * Disables V8's two optimising compilers, TurboFan and (on Node 24) Maglev. V8 counts no calls of optimised functions,
 * and the load of the machine determines when V8 optimises a function.
 */
const probed = { nodeArguments: ['--no-opt', '--no-maglev', '--import', probe], hasChannel: true };

/** Runs a gateway with Redis, registry and an upstream, and traces the functions that these kinds of requests run. */
export async function traceWays(t: Teardowns, wanted: readonly Way[]): Promise<Trace[]> {
  const deployment = await startBenchDeployment(t, {
    ...{ throttles: true, torExits: true, signs: true, recordSecret: true, process: probed },
  });
  await seedKeys(deployment, 10);
  const gateway = await deployment.startGateway();
  const caller = await Caller.open(gateway);
  t.teardown(() => {
    caller.close();
  });
  // Coverage of all kinds first, then the order: the debugger recompiles functions, which makes coverage incomplete.
  const ran: Ran[][] = [];
  for (const way of wanted) ran.push(await caller.whatRuns(way));
  const traces: Trace[] = [];
  for (const [index, way] of wanted.entries()) {
    const functions = ran[index] ?? [];
    const order = await caller.orderOf(way, functions);
    const inOrder = [...new Set([...order, ...functions.keys()])];
    traces.push({ title: way.title, functions: inOrder.flatMap((number) => functions[number]?.seen ?? []) });
  }
  return traces;
}

/** A connection to a gateway, and the IPC channel to its probe. */
class Caller {
  readonly #gateway: GatewayProcess;
  readonly #socket: tls.TLSSocket;

  private constructor(gateway: GatewayProcess, socket: tls.TLSSocket) {
    this.#gateway = gateway;
    this.#socket = socket;
  }

  static async open(gateway: GatewayProcess): Promise<Caller> {
    const { port, ca } = gateway.target;
    const socket = tls.connect({ port, host: '127.0.0.1', servername: 'localhost', ca });
    await once(socket, 'secureConnect');
    return new Caller(gateway, socket);
  }

  close(): void {
    this.#socket.destroy();
  }

  /**
   * The functions that ran in every measurement, each with its fewest lines. Timers may have run the other functions
   * and lines.
   */
  async whatRuns(way: Way): Promise<Ran[]> {
    await this.#send(way, warmUps);
    while (await this.#isWarmingUp()) await wait(100);
    const measured: Map<string, Ran>[] = [];
    for (let count = 0; count < measurements; count += 1) {
      await this.#ask({ ask: 'begin' });
      await this.#send(way, requests);
      const ran = (await this.#taken()).flatMap(functionsThatRan);
      measured.push(new Map(ran.map((one) => [JSON.stringify(one.place), one])));
    }
    return [...(measured[0]?.keys() ?? [])].flatMap((place) => {
      const all = measured.flatMap((of) => of.get(place) ?? []);
      return all.length < measurements
        ? []
        : all.toSorted((one, other) => one.seen.lines - other.seen.lines).slice(0, 1);
    });
  }

  /**
   * Timers fire during some requests, on a busy machine during most of them. So the most frequent order counts, and
   * more requests are sent until it has been seen several times.
   * @returns indexes of functions, ordered by their first call in a request
   */
  async orderOf(way: Way, functions: readonly Ran[]): Promise<number[]> {
    const seen = new Map<string, number>();
    const mostSeen = (): number => Math.max(0, ...seen.values());
    await this.#ask({ ask: 'follow', functions: functions.map(({ place }) => place) });
    for (let index = 0; index < 15 || (mostSeen() < 4 && index < 100); index += 1) {
      await this.#ask({ ask: 'forget' });
      await this.#send(way, 1);
      const order = JSON.stringify(await this.#ask({ ask: 'followed' }));
      seen.set(order, (seen.get(order) ?? 0) + 1);
    }
    await this.#ask({ ask: 'unfollow' });
    const [most] = [...seen].toSorted(([, one], [, other]) => other - one);
    return JSON.parse(most?.[0] ?? '[]') as number[];
  }

  async #send(way: Way, count: number): Promise<void> {
    for (let index = 0; index < count; index += 1) await request(this.#socket, way);
    await wait(20); // the access-log line is written after the response
  }

  #ask(question: Question): Promise<unknown> {
    return askProbe(this.#gateway.child, question);
  }

  async #taken(): Promise<Profiler.ScriptCoverage[]> {
    return (await this.#ask({ ask: 'taken' })) as Profiler.ScriptCoverage[];
  }

  /** Whether the gateway sends requests to itself, as it does for its warm-up. */
  async #isWarmingUp(): Promise<boolean> {
    await this.#ask({ ask: 'begin' });
    await wait(100);
    const own = (await this.#taken()).find(({ url }) => url.endsWith('/dist/edge/warm-up.js'));
    return own?.functions.some(({ ranges: [whole] }) => (whole?.count ?? 0) > 0) === true;
  }
}

async function request(socket: tls.TLSSocket, { bytes, status }: Way): Promise<void> {
  const reader = new ResponseReader();
  socket.write(bytes, 'latin1');
  for (;;) {
    const [chunk] = (await once(socket, 'data')) as [Buffer];
    const received = reader.take(chunk);
    if (received === null) continue;
    if (received !== status) throw new Error(`answered ${received} in place of ${status}`);
    return;
  }
}

async function askProbe(process: ChildProcess, question: Question): Promise<unknown> {
  const reply = once(process, 'message');
  process.send(question);
  const [result] = (await reply) as [unknown];
  return result;
}

/** The files with functions that ran in registry or gateway during the revocation of a cached key. */
export async function filesOfRevocation(t: Teardowns): Promise<Set<string>> {
  const deployment = await startBenchDeployment(t, { process: probed });
  await seedKeys(deployment, 10);
  const gateway = await deployment.startGateway();
  const processes = [deployment.registry.child, gateway.child];
  for (let number = 1; ; number += 1) {
    if ((await gateway.ask(benchKey(number))) !== 200) throw new Error('the key is not accepted');
    for (const process of processes) await askProbe(process, { ask: 'begin' });
    const { data } = await deployment.admin('POST', `/keys/${benchKeyId(number)}/revoke`);
    const { propagation } = data as { propagation: { gateways: number; confirmed: number } };
    if (propagation.gateways === 1 && propagation.confirmed === 1) break;
    // A busy machine can stop the gateway for longer than the registry waits. Then another key is revoked.
    if (number === 5) throw new Error('no revocation is in force');
  }
  const files = new Set<string>();
  for (const process of processes) {
    for (const { url, functions } of (await askProbe(process, { ask: 'taken' })) as Profiler.ScriptCoverage[])
      if (functions.some(({ ranges: [whole] }) => (whole?.count ?? 0) > 0)) files.add(sourceOf(fileURLToPath(url)));
  }
  return files;
}

/** The path relative to src for a file of the build, or relative to node_modules for a file of a package. */
function sourceOf(built: string): string {
  const [, ofPackage] = built.split('/node_modules/');
  return ofPackage ?? path.relative('dist', built).replace(/\.js$/, '.ts');
}

/** Whether a traced file belongs to a package. */
export function isOfPackage(file: string): boolean {
  return file.startsWith('@');
}

interface Ran {
  readonly seen: RanFunction;
  readonly place: Place;
}

/** Matches a comment line. The built code keeps the comments on members of a class, which are not lines that run. */
const commentLine = /^\s*(?:\/\*\*|\*|\/\/)/;

/** The functions of a script that ran in each request, with their executed lines. */
function functionsThatRan({ scriptId, url, functions }: Profiler.ScriptCoverage): Ran[] {
  const built = fileURLToPath(url);
  const text = readFileSync(built, 'utf8');
  const starts = lineStarts(text);
  // The innermost range around a character determines its execution count and its function.
  const owners = new Int32Array(text.length).fill(-1);
  const ranges = functions
    .flatMap(({ ranges }, owner) => ranges.map((range) => ({ ...range, owner })))
    .toSorted((one, other) => one.startOffset - other.startOffset || other.endOffset - one.endOffset);
  for (const { startOffset, endOffset, count, owner } of ranges)
    owners.fill(count >= requests ? owner : -1, startOffset, endOffset);
  return functions.flatMap(({ functionName, ranges: [whole] }, owner): Ran[] => {
    if (whole === undefined || whole.count < requests || (functionName === '' && whole.startOffset === 0)) return [];
    const [first, last] = [lineAt(starts, whole.startOffset), lineAt(starts, whole.endOffset)];
    let lines = 0;
    for (let line = first; line <= last; line += 1) {
      const end = starts[line + 1] ?? text.length;
      if (commentLine.test(text.slice(starts[line], end))) continue;
      for (let at = starts[line] ?? 0; at < end; at += 1) {
        if (owners[at] !== owner || text.charAt(at).trim() === '') continue;
        lines += 1;
        break;
      }
    }
    const file = sourceOf(built);
    const place = {
      ...{ scriptId, line: first, column: whole.startOffset - (starts[first] ?? 0) },
      ...{ endLine: last, endColumn: whole.endOffset - (starts[last] ?? 0) },
    };
    const calls = Math.round(whole.count / requests);
    return [{ seen: { file, name: functionName === '' ? '(unnamed)' : functionName, lines, calls }, place }];
  });
}

function lineStarts(text: string): number[] {
  return [0, ...[...text.matchAll(/\n/g)].map(({ index }) => index + 1)];
}

function lineAt(starts: readonly number[], offset: number): number {
  return starts.findLastIndex((start) => start <= offset);
}

/** The files of a trace, ordered by first appearance. */
export function filesOf({ functions }: Trace): string[] {
  return [...new Set(functions.map(({ file }) => file))];
}

/** Numbers of the gateway's files, functions and lines that ran, and of calls per request, without those of packages. */
export function totalsOf({ functions: all }: Trace): {
  files: number;
  functions: number;
  lines: number;
  calls: number;
} {
  const functions = all.filter(({ file }) => !isOfPackage(file));
  return {
    files: new Set(functions.map(({ file }) => file)).size,
    functions: functions.length,
    lines: functions.reduce((sum, { lines }) => sum + lines, 0),
    calls: functions.reduce((sum, { calls }) => sum + calls, 0),
  };
}
