import type { Config } from './schema.js';

/** The path of an option from the root of the configuration, as names and list indexes. */
export type OptionPath = readonly (string | number)[];

/** A problem in a configuration, and where it is. */
export interface Problem {
  /** Dotted path of the option, such as `routes[2].upstream`; empty for the whole file. */
  readonly path: string;
  readonly message: string;
  /**
   * Line number in the file, from 1. If the file does not set the option, this is the line of the nearest group around
   * the option. Absent if the file sets neither the option nor a group around it.
   */
  readonly line?: number;
}

/** Error with all problems of a configuration. */
export class ConfigError extends Error {
  constructor(
    readonly problems: readonly Problem[],
    /** Path of the configuration file; null if there is no file. */
    readonly file: string | null = null,
  ) {
    super(problems.map(describe).join('\n'));
    this.name = 'ConfigError';
  }
}

/** Formats the error for an operator: one line with the file, then one line per problem. */
export function formatProblems(error: ConfigError): string {
  const count = error.problems.length === 1 ? '1 problem' : `${error.problems.length} problems`;
  const heading = `${error.file ?? 'The configuration'} is not valid (${count}):`;
  return [heading, ...error.problems.map((problem) => `  ${describe(problem)}`)].join('\n');
}

function describe({ path, message, line }: Problem): string {
  const where = [...(line === undefined ? [] : [`line ${line}`]), ...(path === '' ? [] : [path])];
  return [...where, message].join(': ');
}

/**
 * Formats the path of an option for operators, such as `routes[2].upstream`. Quotes a name if it is empty, is longer
 * than 64 characters, or has characters other than letters, digits, _ and -. A quoted name is cut to 64 characters.
 */
export function pathText(path: OptionPath): string {
  let text = '';
  for (const part of path) {
    if (typeof part === 'number') text += `[${part}]`;
    else if (!/^[\w-]{1,64}$/.test(part)) text += `[${quoted(part.slice(0, 64))}]`;
    else text += text === '' ? part : `.${part}`;
  }
  return text;
}

/** Quotes a name and escapes everything except printable ASCII, because names are printed on a terminal. */
function quoted(name: string): string {
  return JSON.stringify(name).replaceAll(
    /[^\x20-\x7e]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** A violation of a rule that the schema cannot express, such as a conflict between two options. */
export interface RuleProblem extends Problem {
  /** Paths of the other options on which the violated rule depends. */
  readonly others?: readonly string[];
}

/** Checks a rule that the schema cannot express. Returns one problem per violation. */
export type Rule = (config: Config) => RuleProblem[];
