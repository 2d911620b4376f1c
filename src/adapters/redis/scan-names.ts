import type { Redis } from 'ioredis';

const namesAtATime = 1_000;
/** How many names a gateway has Redis look at in one step: other commands wait for that. */
export const namesOfStep = 500;

/** The names in the store that begin so. One that comes or goes meanwhile may be left out, and one may come twice. */
export async function* scanNames(redis: Redis, prefix: string): AsyncGenerator<string> {
  for await (const names of scanPages(redis, prefix, namesAtATime)) yield* names;
}

/** The same, as they come: about so many at a time, or fewer where others are between them. */
export async function* scanPages(redis: Redis, prefix: string, count: number): AsyncGenerator<readonly string[]> {
  const pattern = `${prefix.replaceAll(/[\\*?[\]]/g, '\\$&')}*`;
  let cursor = '0';
  do {
    const [next, names] = await redis.scan(cursor, 'MATCH', pattern, 'COUNT', count);
    yield names;
    cursor = next;
  } while (cursor !== '0');
}
