import { stringify } from 'yaml';
import { configSchema } from './schema.js';
import { nonNull } from './schema/option.js';
import type { Option } from './schema/option.js';
import { asMapping } from './validate.js';

const width = 100;

const heading = [
  'The configuration of merchant-gateway: every option, with the value that it has when it is absent.',
  'One file serves all the commands. A value may hold ${VAR} or ${VAR:-default} from the environment; $${ stands for ' +
    '${ itself. Where a plain value holds a variable, it may become a number, true, false or null; a quoted one stays ' +
    'a text. Between { } and [ ] such a value needs quotes. Secrets are given as files. Relative paths start from the ' +
    'directory of this file, also those that are defaults; without a file, from the working directory.',
];

/** The documented default: a configuration file with each option, its description and its default. */
export function documentConfig(): string {
  const options = Object.entries(configSchema.properties as Readonly<Record<string, Option>>);
  const parts = options.map(([name, option]) => documentOption(name, option, option.default));
  return [heading.flatMap((text) => comment(text)), ...parts].map((lines) => `${lines.join('\n')}\n`).join('\n');
}

function documentOption(name: string, option: Option, value: unknown, indent = ''): string[] {
  const inner = nonNull(option);
  const about = comment(describe(option), indent);
  if (inner.properties !== undefined) {
    const block = [`${indent}${name}:`, ...documentSection(inner, asMapping(value) ?? {}, `${indent}  `)];
    return [...about, ...(option.default === null ? block.map((line) => commentedOut(line, indent)) : block)];
  }
  const lines = documentEntries(inner, value, `${indent}  `) ?? [];
  return [...about, ...(lines.length > 0 ? [`${indent}${name}:`, ...lines] : [`${indent}${name}: ${flow(value)}`])];
}

function documentSection(option: Option, given: Readonly<Record<string, unknown>>, indent: string): string[] {
  return Object.entries(option.properties ?? {}).flatMap(([name, child]) => {
    const absent = child.default === undefined ? nonNull(child).examples?.[0] : child.default;
    return documentOption(name, child, given[name] ?? absent, indent);
  });
}

/** The first entry says what each of its options means; the others are short. */
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

/** Makes a list's entry of an entry's lines: its comment above the dash, its first option behind it. */
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
  return `${indent}# ${line.slice(indent.length)}`;
}

function comment(text: string, indent = ''): string[] {
  const lines: string[] = [];
  for (const word of text.split(' ').filter((one) => one !== '')) {
    const last = lines.at(-1);
    const longer = last === undefined ? '' : `${last} ${word}`;
    if (last === undefined || longer.length > width) lines.push(`${indent}# ${word}`);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}
