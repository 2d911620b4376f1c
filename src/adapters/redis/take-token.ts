import type { Cluster, Redis, Result } from 'ioredis';

declare module 'ioredis' {
  interface RedisCommander<Context> {
    /** One when there was a token, else 0; and the tokens that are left, as a text. */
    takeToken(name: string, perSecond: number, size: number): Result<[taken: number, tokens: string], Context>;
  }
}

/**
 * A bucket is a text, its tokens and the microsecond of Redis' own clock at which it had them, and ends by itself when it
 * would be full: one that is not there is full. A clock that is set back, or that of another master, costs no tokens.
 */
const script = `
local perSecond, size = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local tokens, filledAt = string.match(redis.call('GET', KEYS[1]) or '', '^(%S+) (%d+)$')
local elapsed = math.max(0, now - (tonumber(filledAt) or now))
tokens = math.min(size, (tonumber(tokens) or size) + elapsed * perSecond / 1000000)
local taken = tokens >= 1 and 1 or 0
tokens = tokens - taken
local untilFull = math.ceil((size - tokens) * 1000 / perSecond)
redis.call('SET', KEYS[1], string.format('%.17g %.0f', tokens, now), 'PX', untilFull)
return { taken, tostring(tokens) }
`;

/** Gives a connection the command `takeToken`, which is done as a whole or not at all. */
export function defineTakeToken(redis: Redis | Cluster): void {
  redis.defineCommand('takeToken', { numberOfKeys: 1, lua: script });
}
