import { fileURLToPath } from 'node:url';
import type { Config } from '../../config/schema.js';
import type { ConsoleStart } from '../../registry/console/start-console.js';

/** Returns where the console listens, with the directory of its built pages; null if it is off. */
export function consoleOf({ registry: { console } }: Config): ConsoleStart | null {
  return console && { ...console, directory: fileURLToPath(new URL('../../console', import.meta.url)) };
}
