import type { Config } from './schema.js';

/** Where an option stands: names and list indexes, from the top. */
export type OptionPath = readonly (string | number)[];

/** One thing that is wrong, and where. */
export interface Problem {
  /** Dotted, as in `routes[2].upstream`; empty for the file as a whole. */
  readonly path: string;
  readonly message: string;
  /** Line of the file, counted from 1, if the option stands in it. */
  readonly line?: number;
}

/** Everything that is wrong with a configuration, at once. */
export class ConfigError extends Error {
  constructor(
    readonly problems: readonly Problem[],
    /** The file, or null for a configuration that came from none. */
    readonly file: string | null = null,
  ) {
    super(problems.map(describe).join('\n'));
    this.name = 'ConfigError';
  }
}

/** The error as lines for an operator: first the file, then one problem a line. */
export function formatProblems(error: ConfigError): string {
  const count = error.problems.length === 1 ? '1 problem' : `${error.problems.length} problems`;
  const heading = `${error.file ?? 'The configuration'} is not valid (${count}):`;
  return [heading, ...error.problems.map((problem) => `  ${describe(problem)}`)].join('\n');
}

function describe({ path, message, line }: Problem): string {
  const where = [...(line === undefined ? [] : [`line ${line}`]), ...(path === '' ? [] : [path])];
  return [...where, message].join(': ');
}

/** A path as operators write it. A name that is not a plain one is quoted. */
export function pathText(path: OptionPath): string {
  let text = '';
  for (const part of path) {
    if (typeof part === 'number') text += `[${part}]`;
    else if (!/^[\w-]{1,64}$/.test(part)) text += `[${quoted(part.slice(0, 64))}]`;
    else text += text === '' ? part : `.${part}`;
  }
  return text;
}

/** Printable ASCII alone: a message goes to a terminal. */
function quoted(name: string): string {
  return JSON.stringify(name).replaceAll(
    /[^\x20-\x7e]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** A problem, and the other options that take part in it. */
export interface RuleProblem extends Problem {
  readonly others?: readonly string[];
}

/** Says what is wrong between options. */
export type Rule = (config: Config) => RuleProblem[];
