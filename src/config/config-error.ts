import type { Config } from './schema.js';

/** The path of an option: names and list indexes from the root. */
export type OptionPath = readonly (string | number)[];

/** One problem in a configuration, and its location. */
export interface Problem {
  /** Dotted, as in `routes[2].upstream`; empty for the file as a whole. */
  readonly path: string;
  readonly message: string;
  /** Line in the file, counted from 1, if the option is set there. */
  readonly line?: number;
}

/** All problems of a configuration. */
export class ConfigError extends Error {
  constructor(
    readonly problems: readonly Problem[],
    /** Path of the configuration file; null without a file. */
    readonly file: string | null = null,
  ) {
    super(problems.map(describe).join('\n'));
    this.name = 'ConfigError';
  }
}

/** The error as lines for an operator: first the file, then one line per problem. */
export function formatProblems(error: ConfigError): string {
  const count = error.problems.length === 1 ? '1 problem' : `${error.problems.length} problems`;
  const heading = `${error.file ?? 'The configuration'} is not valid (${count}):`;
  return [heading, ...error.problems.map((problem) => `  ${describe(problem)}`)].join('\n');
}

function describe({ path, message, line }: Problem): string {
  const where = [...(line === undefined ? [] : [`line ${line}`]), ...(path === '' ? [] : [path])];
  return [...where, message].join(': ');
}

/** A path in the notation of operators. Names with other characters than letters, digits, _ and - are quoted. */
export function pathText(path: OptionPath): string {
  let text = '';
  for (const part of path) {
    if (typeof part === 'number') text += `[${part}]`;
    else if (!/^[\w-]{1,64}$/.test(part)) text += `[${quoted(part.slice(0, 64))}]`;
    else text += text === '' ? part : `.${part}`;
  }
  return text;
}

/** Escapes everything but printable ASCII, because the message goes to a terminal. */
function quoted(name: string): string {
  return JSON.stringify(name).replaceAll(
    /[^\x20-\x7e]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** A problem between options. */
export interface RuleProblem extends Problem {
  /** Paths of the other options that the rule read. */
  readonly others?: readonly string[];
}

/** Checks a constraint between options; returns a problem per violation. */
export type Rule = (config: Config) => RuleProblem[];
