import type { Redis } from 'ioredis';
import { malformedText } from './record-text.js';
import type { AcknowledgementText } from './records-link.js';

const namesAtATime = 500;

/**
 * Sends commands in one pipeline. Returns their replies in the same order.
 * @throws Error of the first failed command; other commands may have been executed
 */
export async function callAll(
  redis: Redis,
  commands: readonly { readonly command: readonly string[] }[],
): Promise<unknown[]> {
  const pipeline = redis.pipeline();
  for (const { command } of commands) {
    const [verb = '', ...args] = command;
    pipeline.call(verb, ...args);
  }
  const results = (await pipeline.exec()) ?? [];
  for (const [error] of results) if (error !== null) throw error;
  return results.map(([, reply]) => reply);
}

/**
 * Stores each text under its Redis key, with an expiry (PX).
 * @throws Error of the first failed command
 */
export function writeTexts(redis: Redis, texts: readonly AcknowledgementText[]): Promise<unknown[]> {
  return callAll(redis, texts.map(setCommand));
}

/** Builds the SET command for one text, with its expiry (PX). */
export function setCommand({ name, text, lifetimeMilliseconds }: AcknowledgementText): {
  readonly name: string;
  readonly command: string[];
} {
  return { name, command: ['SET', name, text, 'PX', String(lifetimeMilliseconds)] };
}

/** Deletes Redis keys in one pipeline. */
export async function deleteAll(redis: Redis, names: readonly string[]): Promise<void> {
  await callAll(
    redis,
    names.map((name) => ({ command: ['DEL', name] })),
  );
}

/**
 * Reads the texts of these Redis keys in one transaction, in the same order; null for a missing key. For a value that
 * is not a string, returns a text that cannot be parsed, so that the record counts as malformed.
 */
export async function readTogether(redis: Redis, names: readonly string[]): Promise<(string | null)[]> {
  const transaction = redis.multi();
  for (const name of names) transaction.get(name);
  const results = (await transaction.exec()) ?? [];
  return results.map(([error, text]) => (error === null ? (text as string | null) : malformedText(error)));
}

/**
 * Reads the stored bytes of these Redis keys, in the same order; null for a missing key. For a value that is not a
 * string, returns bytes that cannot be parsed.
 */
export async function readBytes(redis: Redis, names: readonly string[]): Promise<(Buffer | null)[]> {
  const texts: (Buffer | null)[] = [];
  for (let start = 0; start < names.length; start += namesAtATime) {
    const pipeline = redis.pipeline();
    for (const name of names.slice(start, start + namesAtATime)) pipeline.getBuffer(name);
    for (const [error, bytes] of (await pipeline.exec()) ?? [])
      texts.push(error === null ? (bytes as Buffer | null) : Buffer.from(malformedText(error)));
  }
  return texts;
}

/** Decodes stored bytes as UTF-8. Returns null for null (a missing key). */
export function bytesToText(bytes: Buffer | null): string | null {
  return bytes?.toString('utf8') ?? null;
}
