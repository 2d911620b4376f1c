import { closeSync, openSync, readSync } from 'node:fs';
import { Check } from '../typebox/typebox.js';
import { ConfigError, type Problem, type RuleProblem } from './config-error.js';
import { baseOf, resolvePaths } from './relative-paths.js';
import { ruleProblems } from './rules/rules.js';
import { type Config, configSchema, type DeepPartial } from './schema.js';
import type { Option } from './schema/option.js';
import { asMapping, validate } from './validate.js';
import { readYaml } from './yaml-source.js';

/** Where a configuration comes from. Without a file and a text, it consists of presets and defaults. */
export interface ConfigSource {
  readonly file?: string | undefined;
  /**
   * Text to use instead of the file's contents. If given, `file` is not read: it only names the source in errors, and
   * its directory is the base of relative paths.
   */
  readonly text?: string | undefined;
  /** Values that the file can override. Groups of options are merged; other values are replaced. */
  readonly presets?: DeepPartial<Config> | undefined;
  /** Environment variables for `${VAR}`; by default those of the process. */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
}

/**
 * Reads a configuration, fills in its defaults, validates it, and makes its paths absolute. Opens no connection, and no
 * file that the configuration names.
 * @throws ConfigError with all problems
 */
export function loadConfig({ file, text, presets = {}, env = process.env }: ConfigSource = {}): Config {
  const source = readYaml(text === undefined ? readConfigFile(file) : checkedText(text, file ?? null), env);
  const { value, problems } = validate(configSchema, layer(configSchema, presets, source.value), source.empty);
  const config = value;
  if (!Check(configSchema, config))
    throw new Error('a default or an example in the configuration schema does not match the schema');
  const wrong = [...source.problems, ...problems.filter(({ path }) => !source.unread.has(path))];
  const resolved = resolvePaths(configSchema, config, baseOf(file), (path) => source.lines.has(path));
  const all = [...wrong, ...soundRuleProblems(config, wrong), ...resolved.problems];
  if (all.length === 0) return deepFreeze(resolved.value) as Config;
  const located = all.map((problem) => withLine(problem, source.lines));
  throw new ConfigError(located.toSorted(byLine), file ?? null);
}

/** Merges two values: `upper` takes precedence over `lower`. Groups of options are merged option by option. */
function layer(option: Option, lower: unknown, upper: unknown): unknown {
  if (upper === undefined) return lower;
  // A YAML section is null if all its options are commented out. It then changes nothing. For any other option, null is
  // a value.
  if (upper === null && option.properties !== undefined) return lower;
  const [below, above] = [asMapping(lower), asMapping(upper)];
  if (below === null || above === null) return upper;
  const names = new Set([...Object.keys(below), ...Object.keys(above)]);
  return Object.fromEntries(
    [...names].map((name) => [name, layer(childOf(option, name), own(below, name), own(above, name))]),
  );
}

function childOf(option: Option, name: string): Option {
  const { properties = {} } = option.anyOf?.[0] ?? option;
  return (Object.hasOwn(properties, name) ? properties[name] : undefined) ?? {};
}

function own(mapping: Readonly<Record<string, unknown>>, name: string): unknown {
  return Object.hasOwn(mapping, name) ? mapping[name] : undefined;
}

/**
 * Returns the violations of rules. Omits a violation that involves an invalid option: in `config`, a default or example
 * has replaced the invalid value, so the violation would not be about the operator's value.
 */
function soundRuleProblems(config: Config, wrong: readonly Problem[]): Problem[] {
  const wrongPaths = new Set(wrong.map(({ path }) => path));
  const isSound = ({ path, others = [] }: RuleProblem): boolean =>
    ![path, ...others].some((one) => ancestry(one).some((part) => wrongPaths.has(part)));
  return ruleProblems(config).filter(isSound);
}

/** Returns a path and all its parents, without the root. */
function ancestry(path: string): string[] {
  const paths: string[] = [];
  for (let rest = path; rest !== ''; rest = rest.replace(lastPart, '')) paths.push(rest);
  return paths;
}

const lastPart = /(?:\.?[\w-]+|\[\d+\]|\["(?:[^"\\]|\\.)*"\]|.)$/;

function withLine(problem: Problem, lines: ReadonlyMap<string, number>): Problem {
  if (problem.line !== undefined) return problem;
  const line = ancestry(problem.path)
    .map((path) => lines.get(path))
    .find((one) => one !== undefined);
  return line === undefined ? problem : { ...problem, line };
}

/** Sorts problems by line in the file; problems without a line come last. */
function byLine(a: Problem, b: Problem): number {
  return (a.line ?? Number.MAX_SAFE_INTEGER) - (b.line ?? Number.MAX_SAFE_INTEGER);
}

function deepFreeze(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  Object.values(value).forEach(deepFreeze);
  return Object.freeze(value);
}

/** Maximum size of a configuration, in bytes. Hand-written files are smaller. */
const maxBytes = 1_048_576;

const reasons: Readonly<Record<string, string>> = {
  ENOENT: 'no such file',
  ENOTDIR: 'no such file: a part of its path is not a directory',
  EACCES: 'cannot be read: permission denied',
  EISDIR: 'is a directory; expected a YAML file',
};

/**
 * Reads a configuration file as text; returns an empty text without a file.
 * @throws ConfigError if the file cannot be read, is too large or is not UTF-8
 */
function readConfigFile(file: string | undefined): string {
  return file === undefined ? '' : decode(readBytes(file), file);
}

/** Returns a text that was given instead of a file. @throws ConfigError if the text exceeds the maximum size */
function checkedText(text: string, file: string | null): string {
  if (Buffer.byteLength(text) > maxBytes) throw tooLarge(file);
  return text;
}

function readBytes(file: string): Buffer {
  // Read one byte more than the maximum to detect larger files, because `stat` reports no size for a pipe.
  const buffer = Buffer.alloc(maxBytes + 1);
  let length = 0;
  try {
    const descriptor = openSync(file, 'r');
    try {
      let count = -1;
      while (count !== 0 && length < buffer.length) {
        count = readSync(descriptor, buffer, length, buffer.length - length, null);
        length += count;
      }
    } finally {
      closeSync(descriptor);
    }
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown reason';
    throw refusal(file, reasons[code] ?? `cannot be read: ${code}`);
  }
  if (length > maxBytes) throw tooLarge(file);
  return buffer.subarray(0, length);
}

function decode(bytes: Buffer, file: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw refusal(file, 'is not UTF-8 text');
  }
}

function tooLarge(file: string | null): ConfigError {
  return refusal(file, `is larger than ${maxBytes} bytes, the maximum for a configuration file`);
}

function refusal(file: string | null, message: string): ConfigError {
  return new ConfigError([{ path: '', message }], file);
}
