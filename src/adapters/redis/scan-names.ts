import type { Redis } from 'ioredis';

const namesAtATime = 1_000;

/** The names in the store that begin so. One that comes or goes meanwhile may be left out, and one may come twice. */
export async function* scanNames(redis: Redis, prefix: string): AsyncGenerator<string> {
  const pattern = `${prefix.replaceAll(/[\\*?[\]]/g, '\\$&')}*`;
  let cursor = '0';
  do {
    const [next, names] = await redis.scan(cursor, 'MATCH', pattern, 'COUNT', namesAtATime);
    yield* names;
    cursor = next;
  } while (cursor !== '0');
}
