import { type Finding, type Inspection, inspectRedis } from '../../adapters/redis/inspect/inspect-redis.js';
import type { OutageEvents } from '../../adapters/redis/outage.js';
import type { Config } from '../../config/schema.js';
import type { Logger } from '../../telemetry/logger.js';
import { redisAddressOf, redisOutageLog } from './redis-address.js';

/** How often it is looked again while something is wrong, so that what was mended is no longer told. */
const againMilliseconds = 15_000;

/** What a part looks at in Redis. */
export async function inspectionOf(config: Config, part: 'gateway' | 'registry'): Promise<Inspection> {
  const { redis, cache } = config.keyStore;
  const use = { part, preloads: cache.preload, countsRequests: config.rateLimit.shared };
  return { address: await redisAddressOf(redis), prefix: redis.prefix, use };
}

/** Looks for what an operator got wrong in Redis, at the start and when Redis is lost or found, and tells it by name. */
export class RedisSelfCheck {
  readonly #inspection: Inspection;
  readonly #log: Logger;
  #findings: readonly Finding[] = [];
  #looking: Promise<void> | null = null;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  private constructor(inspection: Inspection, log: Logger) {
    [this.#inspection, this.#log] = [inspection, log];
    this.look();
  }

  /** Begins to look. */
  static async start(config: Config, part: 'gateway' | 'registry', log: Logger): Promise<RedisSelfCheck> {
    return new RedisSelfCheck(await inspectionOf(config, part), log);
  }

  /** What is wrong, each with its option. */
  readonly warnings = (): string[] => this.#findings.map(textOf);

  /** Why nothing works; null where that is not known. */
  readonly problem = (): string | null => this.#findings.find(({ severity }) => severity === 'error')?.message ?? null;

  /** Tells of an outage, as `redisOutageLog` does, and looks for its reason. */
  outageEvents(): OutageEvents {
    const told = redisOutageLog(this.#log);
    return {
      onLost: (reason) => {
        told.onLost(reason);
        this.look();
      },
      onFound: (lostForMilliseconds) => {
        told.onFound(lostForMilliseconds);
        this.look();
      },
    };
  }

  /** Looks now, unless it is looking. */
  look(): void {
    if (this.#isClosed) return;
    clearTimeout(this.#timer);
    this.#looking ??= this.#inspect().finally(() => {
      this.#looking = null;
      if (this.#findings.length === 0 || this.#isClosed) return;
      this.#timer = setTimeout(() => {
        this.look();
      }, againMilliseconds).unref();
    });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    await this.#looking;
  }

  async #inspect(): Promise<void> {
    const before = new Set(this.#findings.map(textOf));
    this.#findings = await inspectRedis(this.#inspection);
    if (this.#isClosed) return;
    for (const finding of this.#findings) {
      if (before.has(textOf(finding))) continue;
      const { severity, option, message } = finding;
      this.#log[severity === 'error' ? 'error' : 'warn']({ option }, message);
    }
    if (before.size > 0 && this.#findings.length === 0) this.#log.info('what was wrong with Redis is right now');
  }
}

function textOf({ option, message }: Finding): string {
  return `${option}: ${message}`;
}
