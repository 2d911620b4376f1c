import {
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  type Pair,
  parseAllDocuments,
  Scalar,
  type YAMLError,
} from 'yaml';
import { type OptionPath, pathText, type Problem } from './config-error.js';

/** The values of a YAML text. */
export interface YamlSource {
  readonly value: unknown;
  /** Line number of each option, by the option's path. */
  readonly lines: ReadonlyMap<string, number>;
  readonly problems: readonly Problem[];
  /** Paths of options whose values could not be read. */
  readonly unread: ReadonlySet<string>;
  /** Paths of options without a value, as in `approvals:`. Their value is null, as if null were written. */
  readonly empty: ReadonlySet<string>;
}

/** Limit for aliases, against alias expansion attacks ("billion laughs"). Hand-written files have fewer. */
const maxAliases = 100;

/**
 * Matches a line that begins with 200 characters of indentation: spaces, or the marks of nested lists (`- - -`). The
 * YAML parser compiles one regular expression per depth, so deep nesting could exhaust the memory of the process.
 */
const deepIndentation = /^[ ?:-]{200}/m;

const nothing: YamlSource = { value: null, lines: new Map(), problems: [], unread: new Set(), empty: new Set() };

const nestedTooDeep = 'the nesting is too deep; use fewer levels';

const errorMessages: Partial<Record<YAMLError['code'], string>> = {
  BAD_INDENT: 'the indentation does not match the lines above, or a bracket above is not closed',
  MISSING_CHAR: 'a quote, bracket, colon or comma is missing',
  RESOURCE_EXHAUSTION: nestedTooDeep,
  TAB_AS_INDENT: 'the indentation contains a tab; use spaces',
  TAG_RESOLVE_FAILED: 'tags (!name) are not supported; remove them',
};

/** Parses a YAML text and substitutes variables in its values. Never throws; errors in the text become problems. */
export function readYaml(text: string, env: Readonly<Record<string, string | undefined>>): YamlSource {
  const lineCounter = new LineCounter();
  const lineAt = (offset: number): number => lineCounter.linePos(offset).line;
  const tooDeep = deepIndentation.exec(text);
  if (tooDeep !== null) return rejectedSource(notYaml(nestedTooDeep), text.slice(0, tooDeep.index).split('\n').length);
  // `uniqueKeys` is off, because the parser's check for duplicates takes minutes for a large file. `#mappingOf` checks
  // for duplicates instead. `messageOf` replaces the parser's messages: they quote the text, which could contain a
  // secret.
  const documents = parseAllDocuments(text, {
    lineCounter,
    prettyErrors: false,
    resolveKnownTags: false,
    stringKeys: true,
    uniqueKeys: false,
    logLevel: 'silent',
  });
  const [document, second] = Array.isArray(documents) ? documents : [];
  if (document === undefined) return nothing;
  // Report only the first error, because later ones are often its consequences.
  const [fault] = [...document.errors, ...document.warnings];
  if (fault !== undefined) return rejectedSource(messageOf(fault, text), lineAt(fault.pos[0]));
  if (second !== undefined)
    return rejectedSource('a second document (---) starts here; keep only one document', lineAt(second.range[0]));
  return new Reading(document, env, lineAt).read();
}

function rejectedSource(message: string, line: number): YamlSource {
  return { ...nothing, problems: [{ path: '', line, message }] };
}

function messageOf({ code, pos }: YAMLError, text: string): string {
  const hint = text.slice(Math.max(0, pos[0] - 1), pos[0] + 1).includes('${')
    ? '; inside { } or [ ], put a value with ${…} in quotes'
    : '';
  return notYaml(`${errorMessages[code] ?? 'unexpected content; check the commas, colons and quotes'}${hint}`);
}

function notYaml(reason: string): string {
  return `not valid YAML: ${reason}`;
}

/** Converts a YAML document to plain values in one pass. */
class Reading {
  readonly #lines = new Map<string, number>();
  readonly #problems: Problem[] = [];
  readonly #unread = new Set<string>();
  readonly #empty = new Set<string>();
  #aliases = 0;

  constructor(
    readonly document: Document.Parsed,
    readonly env: Readonly<Record<string, string | undefined>>,
    readonly lineAt: (offset: number) => number,
  ) {}

  read(): YamlSource {
    const value = this.#valueOf(this.document.contents, []);
    return { value, lines: this.#lines, problems: this.#problems, unread: this.#unread, empty: this.#empty };
  }

  #valueOf(node: unknown, path: OptionPath): unknown {
    if (isMap(node)) return this.#mappingOf(node.items, path);
    if (isSeq(node)) {
      return node.items.map((item, index) => {
        this.#noteLine(item, [...path, index]);
        return this.#valueOf(item, [...path, index]);
      });
    }
    if (isScalar(node)) return this.#scalarOf(node, path);
    if (isAlias(node)) {
      this.#aliases += 1;
      // This limit also stops an alias inside its own anchor, which would expand forever.
      if (this.#aliases === maxAliases)
        this.#report([], `more than ${maxAliases - 1} aliases (*name) in one file; write the values themselves`);
      const target = this.#aliases < maxAliases ? node.resolve(this.document) : null;
      if (target === undefined)
        this.#report(path, 'no anchor (&name) precedes the alias (*name); write the value itself');
      return this.#valueOf(target, path);
    }
    return null;
  }

  #mappingOf(pairs: readonly Pair[], path: OptionPath): unknown {
    const entries = new Map<string, unknown>();
    for (const { key, value } of pairs) {
      const name = isScalar(key) ? String(key.value) : '';
      const at = [...path, name];
      if (entries.has(name)) {
        this.#problems.push({ path: pathText(at), ...this.#lineOf(key), message: 'is given twice; keep one' });
        continue;
      }
      this.#noteLine(key, at);
      if (isEmptyNode(value)) this.#empty.add(pathText(at));
      entries.set(name, this.#valueOf(value, at));
    }
    return Object.fromEntries(entries);
  }

  #scalarOf(node: Scalar, path: OptionPath): unknown {
    if (typeof node.value !== 'string') return node.value;
    const { text, changed, problems } = interpolate(node.value, this.env);
    for (const problem of new Set(problems)) this.#report(path, problem);
    return changed && node.type === Scalar.PLAIN && node.tag === undefined ? this.#resolve(text) : text;
  }

  /**
   * Resolves an unquoted scalar, after the substitution of variables, to a number, true, false, null or text. A
   * variable can never become a list or mapping.
   */
  #resolve(text: string): unknown {
    for (const tag of this.document.schema.tags) {
      if (tag.collection === undefined && tag.default === true && tag.test?.test(text) === true) {
        const value = tag.resolve(text, () => undefined, {});
        return isScalar(value) ? value.value : value;
      }
    }
    return text;
  }

  #noteLine(node: unknown, path: OptionPath): void {
    const { line } = this.#lineOf(node);
    if (line !== undefined) this.#lines.set(pathText(path), line);
  }

  #lineOf(node: unknown): { line?: number } {
    const range = (node as Partial<Node> | null)?.range;
    return range ? { line: this.lineAt(range[0]) } : {};
  }

  #report(path: OptionPath, message: string): void {
    this.#problems.push({ path: pathText(path), message });
    this.#unread.add(pathText(path));
  }
}

function isEmptyNode(node: unknown): boolean {
  return node === null || (isScalar(node) && node.value === null && node.source === '' && node.tag === undefined);
}

/** A text after the substitution of its variables. */
interface Interpolated {
  readonly text: string;
  /** Whether a variable was substituted. Replacing the escape `$${` by `${` does not count. */
  readonly changed: boolean;
  readonly problems: readonly string[];
}

/**
 * Matches, in this order: an escaped `${` (written as `$${`), a complete variable, and the start of a malformed one.
 */
const variable = /\$\$\{|\$\{(?<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?<fallback>[^}]*))?\}|\$\{/g;

/**
 * Substitutes `${VAR}` and `${VAR:-default}` from the environment, but not variables inside substituted values. An
 * empty variable counts as unset, like with `:-` in a shell. Removes trailing line ends from a variable's value.
 */
export function interpolate(source: string, env: Readonly<Record<string, string | undefined>>): Interpolated {
  const problems: string[] = [];
  let changed = false;
  const text = source.replace(variable, (match: string, ...rest: unknown[]) => {
    if (match === '$${') return '${';
    const { name, fallback } = rest.at(-1) as { name?: string; fallback?: string };
    if (name === undefined) {
      problems.push(
        '"${" does not begin a complete variable such as ${NAME}; complete it, or write "$${" for a literal "${"',
      );
      return match;
    }
    changed = true;
    const value = Object.hasOwn(env, name) ? env[name]?.replace(/[\r\n]+$/, '') : undefined;
    if (value !== undefined && value !== '') return value;
    if (fallback === undefined) {
      const state = value === undefined ? 'not set' : 'empty';
      problems.push(`the environment variable ${name} is ${state}; set it, or write a default: \${${name}:-default}`);
    }
    return fallback ?? '';
  });
  return { text, changed, problems };
}
