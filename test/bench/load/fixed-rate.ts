import { Connections } from './connections.js';
import type { Target } from './connection.js';
import type { Load, LoadOrder, LoadResult } from './load.js';

/**
 * Opens connections for requests at a fixed rate, whatever becomes of them: those of each millisecond are meant to go out
 * when it begins. Where every connection is busy they wait, and their wait counts: a subject that stops for a moment is
 * not spared the requests that would have come.
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
    const endWhenAnswered = (): void => {
      if (elapsed >= milliseconds && latencies.length === sent) done();
    };
    const sendWaiting = (): void => {
      while (waiting.length > 0) {
        const connection = free.shift(); // by turns: one that is left out for long would be closed as idle
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
          endWhenAnswered();
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
      else endWhenAnswered(); // at a low rate the last answer may be long there
    };
    tick();
  });
  return { requests: sent, seconds: (performance.now() - begun) / 1000, latencies };
}
