import type { Problem } from './config-error.js';
import { gatewayProblems } from './gateway-problems.js';
import type { Config } from './schema.js';

/** The commands that run as long as they are let, each with its own part of a configuration. */
export const serverCommands = ['gateway', 'registry', 'services'] as const;

/** One of them. */
export type ServerCommand = (typeof serverCommands)[number];

/** What keeps one command, and perhaps no other, from starting with a configuration that is valid as such. */
export function startProblems(command: ServerCommand, config: Config): Problem[] {
  if (command === 'gateway') return gatewayProblems(config);
  if (command === 'services' || config.registry.tokenFile !== null) return [];
  return [{ path: 'registry.tokenFile', message: "expected the path of a file with the administrators' token" }];
}
