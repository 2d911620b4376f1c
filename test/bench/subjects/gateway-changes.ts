import { renameSync, writeFileSync } from 'node:fs';
import type { Redis } from 'ioredis';
import { lookupIdOf } from '../../../src/gateway/api-key.js';
import { benchKey, type Place } from '../compare/place.js';
import { keyRecord, torExits } from './gateway-records.js';

const changesPerSecond = 50;

/**
 * Changes key records and replaces the Tor exit list while the load runs.
 * @returns a function that starts the changes and returns a function that stops them
 */
export function changesOf(redis: Redis, { keys }: Place, torFile: string): () => () => Promise<void> {
  let [revision, lists] = [1, 0];
  return () => {
    lists += 1;
    writeFileSync(`${torFile}.new`, `${[...torExits, `185.220.199.${lists % 250}`].join('\n')}\n`);
    renameSync(`${torFile}.new`, torFile);
    const asked: Promise<unknown>[] = [];
    const timer = setInterval(() => {
      const number = (revision += 1) % keys;
      const record = JSON.stringify(keyRecord(number, revision));
      asked.push(redis.set(`mg:key:${lookupIdOf(benchKey(number), null)}`, record), redis.set('mg:revision', revision));
    }, 1000 / changesPerSecond);
    return async () => {
      clearInterval(timer);
      await Promise.all(asked);
    };
  };
}
