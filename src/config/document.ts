import { stringify } from 'yaml';
import { configSchema } from './schema.js';
import { nonNull } from './schema/option.js';
import type { Option } from './schema/option.js';
import { asMapping } from './validate.js';

const width = 100;
const commentMark = '# ';

const heading = [
  'The configuration of merchant-gateway: every option with its default.',
  'One file serves all commands. A value may contain ${VAR} or ${VAR:-default} from the environment; write $${ for a ' +
    'literal ${. An unquoted value with a variable may become a number, true, false or null; a quoted value stays a ' +
    'string. Inside { } or [ ], a value with a variable needs quotes. Secrets are not in this file: ' +
    'the option for a secret names the file that contains it. Relative paths, including default paths, start from the ' +
    'directory of this file. Without a configuration file, they start from the working directory.',
];

/** Returns the default configuration as a YAML file that contains each option with its description and default. */
export function documentConfig(): string {
  const options = Object.entries(configSchema.properties as Readonly<Record<string, Option>>);
  const parts = options.map(([name, option]) => documentOption(name, option, option.default));
  return [heading.flatMap((text) => comment(text)), ...parts].map((lines) => `${lines.join('\n')}\n`).join('\n');
}

/**
 * Documents one option.
 * @param depth number of enclosing groups that are commented out; each adds a comment mark to the lines
 */
function documentOption(name: string, option: Option, value: unknown, indent = '', depth = 0): string[] {
  const inner = nonNull(option);
  const about = comment(describe(option), indent, width - depth * commentMark.length);
  if (inner.properties !== undefined) {
    const block = [
      `${indent}${name}:`,
      ...documentSection(inner, asMapping(value) ?? {}, `${indent}  `, depth, option.default === null),
    ];
    return [...about, ...(option.default === null ? block.map((line) => commentedOut(line, indent)) : block)];
  }
  // Show no example for an empty list outside a commented-out group: the example would take effect.
  const isEmpty = depth === 0 && Array.isArray(value) && value.length === 0;
  const lines = isEmpty ? [] : (documentEntries(inner, value, `${indent}  `) ?? []);
  return [...about, ...(lines.length > 0 ? [`${indent}${name}:`, ...lines] : [`${indent}${name}: ${flow(value)}`])];
}

/**
 * Documents the options of a group.
 * @param isCommentedOut whether the group is commented out. In such a group, an option shows an example if its default
 *   is null.
 */
function documentSection(
  option: Option,
  given: Readonly<Record<string, unknown>>,
  indent: string,
  depth = 0,
  isCommentedOut = false,
): string[] {
  return Object.entries(option.properties ?? {}).flatMap(([name, child]) => {
    const [example] = nonNull(child).examples ?? [];
    const absent =
      child.default === undefined || (isCommentedOut && child.default === null)
        ? (example ?? child.default)
        : child.default;
    return documentOption(name, child, given[name] ?? absent, indent, depth + Number(isCommentedOut));
  });
}

/**
 * Documents a list or map whose entries are groups of options. Only the first entry has descriptions; each further
 * entry takes one line. Returns null if the entries are not groups.
 */
function documentEntries(option: Option, value: unknown, indent: string): string[] | null {
  const [entryOption] = option.items ? [option.items] : Object.values(option.patternProperties ?? {});
  if (entryOption?.properties === undefined) return null;
  if (Array.isArray(value)) {
    const [first, ...others] = value as unknown[];
    const lines = documentSection(entryOption, asMapping(first) ?? {}, `${indent}  `);
    return [...withDash(lines, indent), ...others.map((entry) => `${indent}- ${flow(entry)}`)];
  }
  const [[firstName, first] = ['', {}], ...others] = Object.entries(asMapping(value) ?? {});
  return [
    ...documentOption(firstName, entryOption, first, indent),
    ...others.map(([name, entry]) => `${indent}${name}: ${flow(entry)}`),
  ];
}

/** Turns the lines of an entry into a YAML list item, with the comment above the dash and the option after the dash. */
function withDash(lines: readonly string[], indent: string): string[] {
  const start = lines.findIndex((line) => !line.trimStart().startsWith('#'));
  return lines.map((line, index) => {
    if (index > start) return line;
    return `${indent}${index === start ? '- ' : ''}${line.trimStart()}`;
  });
}

function describe(option: Option): string {
  const inner = nonNull(option);
  const example =
    inner.type === 'array' && inner.items?.properties === undefined ? inner.items?.examples?.[0] : undefined;
  return [
    option.description ?? '',
    ...(inner.type === 'integer' ? [`From ${inner.minimum ?? 0} to ${inner.maximum ?? 0}.`] : []),
    ...(inner.enum === undefined ? [] : [`One of: ${inner.enum.join(', ')}.`]),
    ...(example === undefined ? [] : [`Example: [${flow(example)}]`]),
  ].join(' ');
}

function flow(value: unknown): string {
  const flowCollectionPadding = !Array.isArray(value);
  return stringify(value, {
    collectionStyle: 'flow',
    singleQuote: true,
    lineWidth: 0,
    flowCollectionPadding,
  }).trimEnd();
}

function commentedOut(line: string, indent: string): string {
  return `${indent}${commentMark}${line.slice(indent.length)}`;
}

function comment(text: string, indent = '', most = width): string[] {
  const lines: string[] = [];
  for (const word of text.split(' ').filter((one) => one !== '')) {
    const last = lines.at(-1);
    const longer = last === undefined ? '' : `${last} ${word}`;
    if (last === undefined || longer.length > most) lines.push(`${indent}${commentMark}${word}`);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}
