import type { Redis } from 'ioredis';
import { damagedText } from './damaged-text.js';

/** Has commands carried out in one go. @throws Error that of the first that failed; the others may have had effect */
export async function callAll(redis: Redis, commands: readonly (readonly string[])[]): Promise<unknown[]> {
  const pipeline = redis.pipeline();
  for (const [verb = '', ...args] of commands) pipeline.call(verb, ...args);
  const results = (await pipeline.exec()) ?? [];
  for (const [error] of results) if (error !== null) throw error;
  return results.map(([, answer]) => answer);
}

/** Reads texts. @param commands a pipeline, or a transaction for all at one moment */
export async function textsOf(
  commands: ReturnType<Redis['multi']>,
  names: readonly string[],
): Promise<(string | null)[]> {
  for (const name of names) commands.get(name);
  const results = (await commands.exec()) ?? [];
  return results.map(([error, text]) => (error === null ? (text as string | null) : damagedText(error)));
}
