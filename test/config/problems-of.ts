import { ConfigError, formatProblems } from '../../src/config/config-error.js';
import { loadConfig } from '../../src/config/load.js';
import type { ConfigSource } from '../../src/config/load.js';

/** The problems of a configuration as lines for operators; empty if the configuration is valid. */
export function problemsOf(source: ConfigSource): string[] {
  try {
    loadConfig(source);
    return [];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return formatProblems(error)
      .split('\n')
      .slice(1)
      .map((line) => line.trimStart());
  }
}
