import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as wait } from 'node:timers/promises';
import tls from 'node:tls';
import { numberIn, optionsOf, say } from './command-line.js';
import { Teardowns } from '../deployment/teardowns.js';
import { startBenchDeployment } from './deployment.js';
import { residentMebibytes } from './resident-memory.js';
import { distributionOf, distributionText } from './distribution.js';
import { ResponseReader } from './load/response-reader.js';
import type { Target } from './load/connection.js';
import { requestWith } from './requests.js';
import { seedKeys } from './seed.js';
import type { Attack, Reached } from './siege/attackers.js';
import { killAtEnd } from '../product-command.js';

// One client sends requests with a key, while clients without a key hold connections, trickle bodies and repeat
// handshakes, from few or many addresses. Measures how long the client with the key waits for its first response, and
// counts its requests that get no response. `--program` names another build for comparison.

const options = optionsOf({
  ...{ idle: '10000', bodies: '500', handshakes: '300', addresses: '3,1000', connections: '10000', seconds: '20' },
  ...{ opens: '500', 'ramp-seconds': '60', pause: '100', program: 'dist/cli/main.js' },
});
const seconds = numberIn('seconds', options.seconds);
const rampSeconds = numberIn('ramp-seconds', options['ramp-seconds']);
const pauseMilliseconds = numberIn('pause', options.pause);
/** A request without a response after this time counts as lost. */
const lostAfterMilliseconds = 10_000;

const t = new Teardowns();
try {
  const results: Awaited<ReturnType<typeof besiege>>[] = [];
  for (const addresses of options.addresses.split(',')) results.push(await besiege(numberIn('addresses', addresses)));
  if (options.json) process.stdout.write(`${JSON.stringify(results)}\n`);
  else for (const result of results) print(result);
  if (results.some(({ caller }) => caller.lost > 0 || !(caller.firstMilliseconds <= 1000))) process.exitCode = 1;
} finally {
  await t.close();
}

async function besiege(addresses: number) {
  const own = new Teardowns();
  try {
    const deployment = await startBenchDeployment(own, {
      settings: { limits: { connections: numberIn('connections', options.connections) } },
      throttles: true,
    });
    await seedKeys(deployment, 10);
    const gateway = await deployment.startGateway({}, { root: path.resolve(options.program, '../../..') });
    const attack: Attack = {
      ...{ port: gateway.target.port, addresses, idle: numberIn('idle', options.idle) },
      ...{
        bodies: numberIn('bodies', options.bodies),
        handshakesPerSecond: numberIn('handshakes', options.handshakes),
      },
      ...{ opensPerSecond: numberIn('opens', options.opens), seconds: rampSeconds + 2 * seconds + 60 },
    };
    say(`${addresses} addresses without a key`);
    const attackers = startAttackers(own, attack);
    await Promise.race([attackers.full, wait(rampSeconds * 1000)]);
    say(`the caller with a key begins`);
    const caller = await callAlong(gateway.target);
    const memory = await residentMebibytes(gateway.pid, 'VmHWM');
    return { addresses, reached: await attackers.end(), memoryMebibytes: memory, caller };
  } finally {
    await own.close();
  }
}

function startAttackers(t: Teardowns, attack: Attack): { full: Promise<void>; end: () => Promise<Reached> } {
  const child = spawn(process.execPath, [path.resolve('dist-test/test/bench/siege/attackers.js')], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  killAtEnd(t, child);
  child.stdin.write(`${JSON.stringify(attack)}\n`);
  const lines: string[] = [];
  const reader = createInterface({ input: child.stdout }).on('line', (line) => lines.push(line));
  return {
    full: once(reader, 'line').then(() => undefined),
    async end() {
      const closed = once(child, 'close');
      child.stdin.end();
      await closed;
      return JSON.parse(lines.at(-1) ?? '{}') as Reached;
    },
  };
}

/**
 * Sends requests at intervals, each on a new connection, like a client that starts during the attack. Returns the
 * number of requests, how many of them were lost and why, and the response times.
 */
async function callAlong(target: Target) {
  const begun = performance.now();
  const end = begun + seconds * 1000;
  const times: number[] = [];
  const causes: Record<string, number> = {};
  const asking: Promise<void>[] = [];
  let first = NaN;
  while (performance.now() < end) {
    const sent = performance.now();
    asking.push(
      askOnce(target).then(
        () => {
          times.push(performance.now() - sent);
          if (Number.isNaN(first)) first = performance.now() - begun;
        },
        (error: unknown) => {
          const cause = (error as Error).message;
          causes[cause] = (causes[cause] ?? 0) + 1;
        },
      ),
    );
    await wait(pauseMilliseconds);
  }
  await Promise.all(asking);
  const lost = asking.length - times.length;
  return {
    requests: asking.length,
    lost,
    causes,
    firstMilliseconds: Math.round(first),
    milliseconds: distributionOf(times),
  };
}

async function askOnce({ port, ca }: Target): Promise<void> {
  const socket = tls.connect({ port, host: '127.0.0.1', servername: 'localhost', ...(ca === null ? {} : { ca }) });
  const late = setTimeout(() => socket.destroy(new Error('no response in time')), lostAfterMilliseconds);
  const reader = new ResponseReader();
  const received: { status: number | null } = { status: null };
  socket.on('data', (chunk: Buffer) => {
    received.status = reader.take(chunk);
    if (received.status !== null) socket.end();
  });
  socket.once('secureConnect', () => {
    socket.write(requestWith(3), 'latin1');
  });
  await once(socket, 'close').finally(() => {
    clearTimeout(late);
  });
  if (received.status === null) throw new Error('closed without a response');
  if (received.status !== 200) throw new Error(`status ${received.status}`);
}

function print({ addresses, reached, memoryMebibytes, caller }: Awaited<ReturnType<typeof besiege>>): void {
  process.stdout.write(
    `${addresses} addresses without a key: ${reached.idle} idle connections and ${reached.bodies} bodies at the end, ${reached.opened} opened, ` +
      `${reached.closedByOthers} closed by the gateway; ${reached.handshakes} handshakes and ${reached.refusedHandshakes} that were refused\n` +
      `the caller with a key: first response after ${caller.firstMilliseconds} ms; ${caller.lost} of ${caller.requests} without one ` +
      `${JSON.stringify(caller.causes)}\n` +
      `milliseconds with a new connection each: ${distributionText(caller.milliseconds)}\n` +
      `memory of the gateway at most: ${memoryMebibytes} MiB\n`,
  );
}
