import { existsSync } from 'node:fs';
import path from 'node:path';
import { pathText } from './config-error.js';
import type { OptionPath, Problem } from './config-error.js';
import { absolutePath } from './operator-file.js';
import { nonNull } from './schema/option.js';
import type { PathForm, Option } from './schema/option.js';
import { asMapping } from './validate.js';

/** A configuration with absolute paths, and the problems found while resolving its relative paths. */
export interface ResolvedPaths {
  readonly value: unknown;
  readonly problems: readonly Problem[];
}

/**
 * Returns the directory against which relative paths are resolved: the directory of the configuration file. If there is
 * no file, or the file is a pipe under /dev or /proc, this is the working directory.
 */
export function baseOf(file: string | undefined): string {
  if (file === undefined) return process.cwd();
  const absolute = path.resolve(file);
  return /^\/(?:dev|proc)\//.test(absolute) ? process.cwd() : path.dirname(absolute);
}

/**
 * Makes all paths in a complete configuration absolute.
 * @param isGiven whether the file sets the option at this path; problems are reported only for such options
 */
export function resolvePaths(
  schema: Option,
  value: unknown,
  base: string,
  isGiven: (path: string) => boolean,
): ResolvedPaths {
  const problems: Problem[] = [];
  const resolve: Resolve = (text, held, at) =>
    resolveHeld(text, held, (file) => {
      const resolved = absolutePath(base, file);
      const problem = isGiven(pathText(at)) ? strayProblem(file, resolved) : null;
      if (problem !== null) problems.push({ path: pathText(at), message: problem });
      return resolved;
    });
  return { value: walk(schema, value, [], resolve), problems };
}

type Resolve = (text: string, held: PathForm, at: OptionPath) => string;

function walk(option: Option, value: unknown, at: OptionPath, resolve: Resolve): unknown {
  const { holds, items, properties, patternProperties } = nonNull(option);
  const held = holds ?? option.holds;
  if (typeof value === 'string') return held === undefined ? value : resolve(value, held, at);
  if (Array.isArray(value))
    return items === undefined ? value : value.map((item, index) => walk(items, item, [...at, index], resolve));
  const mapping = asMapping(value);
  if (mapping === null) return value;
  const [ofEach] = Object.values(patternProperties ?? {});
  return Object.fromEntries(
    Object.entries(mapping).map(([name, child]) => {
      const inner = properties?.[name] ?? ofEach;
      return [name, inner === undefined ? child : walk(inner, child, [...at, name], resolve)];
    }),
  );
}

function resolveHeld(text: string, held: PathForm, resolve: (file: string) => string): string {
  if (held === 'destination' && text === 'stdout') return text;
  if (held === 'source' && /^https?:\/\//i.test(text)) return text;
  if (held !== 'database') return resolve(text);
  const [, file] = /^sqlite:(.*)$/s.exec(text) ?? [];
  if (file !== undefined) return file === ':memory:' ? text : `sqlite:${resolve(file)}`;
  // The parameters sslrootcert, sslcert and sslkey are file paths for libpq and for this program's PostgreSQL client,
  // so resolve them too.
  return text.replaceAll(/(?<=[?&]ssl(?:rootcert|cert|key)=)[^&#]+/g, (value) => {
    const file = decoded(value);
    return file === null ? value : encodeURIComponent(resolve(file)).replaceAll('%2F', '/');
  });
}

function decoded(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

/**
 * Detects a relative path whose file exists only in the working directory, where earlier releases looked for it.
 * Otherwise a start could silently create a second file, such as an empty database. Returns null without this problem.
 */
function strayProblem(given: string, resolved: string): string | null {
  const former = path.resolve(given);
  if (former === path.normalize(resolved) || existsSync(resolved) || !existsSync(former)) return null;
  return (
    `is relative to the folder of the configuration file, but ${resolved} does not exist. ` +
    `${former} exists in the working directory: configure that path, or move the file`
  );
}
