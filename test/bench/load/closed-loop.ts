import { Connections } from './connections.js';
import type { Target } from './connection.js';
import type { Load, LoadOrder, LoadResult } from './load.js';

/** The clock is read only once per this number of responses, because a reading takes time. */
const checkEvery = 16;

/** Opens connections that each send the next request as soon as the response has arrived. */
export async function openClosedLoop(target: Target, count: number): Promise<Load> {
  const connections = await Connections.open(target, count);
  return {
    run: (order) => run(connections, order),
    close: () => {
      connections.close();
    },
  };
}

async function run(connections: Connections, { next, status: expected, seconds }: LoadOrder): Promise<LoadResult> {
  const begun = performance.now();
  const end = begun + seconds * 1000;
  let [requests, busy, isOver] = [0, connections.all.length, false];
  await connections.use((done, fail) => {
    for (const connection of connections.all) {
      const onResponse = (status: number): void => {
        if (status !== expected) fail(new Error(`answered ${status} in place of ${expected}`));
        requests += 1;
        if (!isOver && requests % checkEvery === 0) isOver = performance.now() > end;
        if (!isOver) connection.send(next(), onResponse);
        else if ((busy -= 1) === 0) done();
      };
      connection.send(next(), onResponse);
    }
  });
  return { requests, seconds: (performance.now() - begun) / 1000, latencies: [] };
}
