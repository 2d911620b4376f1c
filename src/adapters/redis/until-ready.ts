import { once } from 'node:events';
import type { Cluster, Redis } from 'ioredis';

const partMilliseconds = 50;

/**
 * Waits until a connection is ready to send commands. After a stall of the process, a timer fires before Node reads the
 * replies that have already arrived. So the timeout consists of 50 ms intervals, and a stall uses up only one of them.
 * @throws Error if the connection fails, or is not ready within this time
 */
export async function untilReady(redis: Redis | Cluster, milliseconds: number): Promise<void> {
  const timeout = new AbortController();
  let left = Math.ceil(milliseconds / partMilliseconds);
  const timer = setInterval(() => {
    left -= 1;
    if (left === 0) timeout.abort(new Error(`the connection to Redis was not ready within ${milliseconds} ms`));
  }, partMilliseconds).unref();
  try {
    await once(redis, 'ready', { signal: timeout.signal });
  } finally {
    clearInterval(timer);
  }
}
