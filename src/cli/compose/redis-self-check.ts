import { type Finding, type Inspection, inspectRedis } from '../../adapters/redis/inspect/inspect-redis.js';
import type { OutageEvents } from '../../adapters/redis/outage.js';
import type { Config } from '../../config/schema.js';
import type { Logger } from '../../telemetry/logger.js';
import { redisAddressOf, redisOutageLog } from './redis-address.js';

/**
 * Interval between checks while there are findings (problems). Without further checks, a corrected problem would stay
 * listed.
 */
const againMilliseconds = 15_000;

/**
 * Returns the settings for an inspection of Redis: address, key prefix, and how the gateway or registry uses Redis.
 * @throws OperatorError for a secret file that cannot be read
 */
export async function inspectionOf(config: Config, part: 'gateway' | 'registry'): Promise<Inspection> {
  const { redis, cache } = config.keyStore;
  const submits =
    part === 'gateway' ? (config.accessLog.checkpoints?.witness ?? null) !== null : config.registry.witness !== null;
  const usesChannel = submits || (config.usage.enabled && config.keys.recordSecretFile !== null);
  const use = { part, preloads: cache.preload, countsRequests: config.rateLimit.shared, usesChannel };
  return { address: await redisAddressOf(redis), prefix: redis.prefix, use };
}

/**
 * Checks Redis for mistakes in its set-up, and logs new findings. Runs at startup, when an outage starts or ends, and
 * every 15 seconds while there are findings.
 */
export class RedisSelfCheck {
  readonly #inspection: Inspection;
  readonly #log: Logger;
  #findings: readonly Finding[] = [];
  #checking: Promise<void> | null = null;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  private constructor(inspection: Inspection, log: Logger) {
    [this.#inspection, this.#log] = [inspection, log];
    this.check();
  }

  /** Creates the check and starts the first inspection. */
  static async start(config: Config, part: 'gateway' | 'registry', log: Logger): Promise<RedisSelfCheck> {
    return new RedisSelfCheck(await inspectionOf(config, part), log);
  }

  /** Returns the current findings as texts, each in the form `option: message`. */
  readonly warnings = (): string[] => this.#findings.map(textOf);

  /** Returns the message of the first finding that is an error; null if there is no such finding. */
  readonly problem = (): string | null => this.#findings.find(({ severity }) => severity === 'error')?.message ?? null;

  /** Returns callbacks that log the start and the end of an outage. Both also inspect Redis, to find the reason. */
  outageEvents(): OutageEvents {
    const outageLog = redisOutageLog(this.#log);
    return {
      onLost: (reason) => {
        outageLog.onLost(reason);
        this.check();
      },
      onFound: (lostForMilliseconds) => {
        outageLog.onFound(lostForMilliseconds);
        this.check();
      },
    };
  }

  /** Starts an inspection if no other inspection is running. */
  check(): void {
    if (this.#isClosed) return;
    clearTimeout(this.#timer);
    this.#checking ??= this.#inspect().finally(() => {
      this.#checking = null;
      if (this.#findings.length === 0 || this.#isClosed) return;
      this.#timer = setTimeout(() => {
        this.check();
      }, againMilliseconds).unref();
    });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    await this.#checking;
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
    if (before.size > 0 && this.#findings.length === 0) this.#log.info('all problems found in Redis are resolved');
  }
}

function textOf({ option, message }: Finding): string {
  return `${option}: ${message}`;
}
