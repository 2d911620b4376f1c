import { Connections } from './connections.js';
import type { Target } from './connection.js';
import type { Load, LoadOrder, LoadResult } from './load.js';

/**
 * Opens connections for an open load: requests at a fixed rate, independent of the responses. Each request is due at
 * the start of its millisecond. While every connection is busy, requests queue, and the queueing time counts as
 * latency. So a subject that pauses briefly is charged for all requests of the pause (no coordinated omission).
 */
export async function openFixedRate(target: Target, count: number, perSecond: number): Promise<Load> {
  const connections = await Connections.open(target, count);
  return {
    run: (order) => run(connections, perSecond / 1000, order),
    close: () => {
      connections.close();
    },
  };
}

async function run(
  connections: Connections,
  perMillisecond: number,
  { next, status: expected, onOtherStatus, seconds }: LoadOrder,
): Promise<LoadResult> {
  const latencies: number[] = [];
  const free = [...connections.all];
  const waiting: number[] = [];
  const milliseconds = seconds * 1000;
  const begun = performance.now();
  let [elapsed, due, sent] = [0, 0, 0];
  await connections.use((done, fail) => {
    const endWhenComplete = (): void => {
      if (elapsed >= milliseconds && latencies.length === sent) done();
    };
    const sendWaiting = (): void => {
      while (waiting.length > 0) {
        const connection = free.shift(); // by turns, because a subject closes idle connections
        if (connection === undefined) return;
        const intended = waiting.shift() ?? 0;
        connection.send(next(), (status) => {
          if (status !== expected) {
            if (onOtherStatus === undefined) fail(new Error(`answered ${status} in place of ${expected}`));
            else onOtherStatus(status);
          }
          latencies.push(performance.now() - intended);
          free.push(connection);
          sendWaiting();
          endWhenComplete();
        });
      }
    };
    const tick = (): void => {
      const now = performance.now() - begun;
      for (; elapsed <= now && elapsed < milliseconds; elapsed += 1) {
        for (due += perMillisecond; due >= 1; due -= 1) {
          waiting.push(begun + elapsed);
          sent += 1;
        }
      }
      sendWaiting();
      if (elapsed < milliseconds) setTimeout(tick, 1);
      else endWhenComplete(); // at a low rate the last response may have arrived long ago
    };
    tick();
  });
  return { requests: sent, seconds: (performance.now() - begun) / 1000, latencies };
}
