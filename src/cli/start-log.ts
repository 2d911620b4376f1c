import { configDigest } from '../config/config-digest.js';
import type { Config } from '../config/schema.js';
import { createLogger } from '../telemetry/logger.js';
import type { Logger } from '../telemetry/logger.js';
import type { Build } from '../telemetry/process-metrics.js';
import { version } from './version.js';

/** A part that begins: its log, and what runs. */
export interface Beginning {
  readonly log: Logger;
  readonly build: Build;
}

/** Opens the log of a part. Its first line says what runs, and with what configuration: replicas that differ can be told apart. */
export function beginLog(part: 'gateway' | 'registry' | 'services', config: Config): Beginning {
  const log = createLogger(config.log.level);
  const build = { version, config: configDigest(config) };
  log.info({ part, ...build, node: process.versions.node }, 'starting');
  return { log, build };
}
