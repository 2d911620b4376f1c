import { Check, type TSchema } from '../typebox/typebox.js';
import { closestName } from './closest-name.js';
import { pathText } from './config-error.js';
import type { OptionPath, Problem } from './config-error.js';
import { expectationOf, nonNull } from './schema/option.js';
import type { Option } from './schema/option.js';

/** A configuration with its defaults filled in, and the problems of the given values. */
export interface Validation {
  /** A configuration that conforms to the schema. Each invalid value is replaced by the option's default or example. */
  readonly value: unknown;
  readonly problems: readonly Problem[];
}

/**
 * Validates the given values against the schema, option by option, and fills in the defaults. Does not change `given`.
 * @param empty paths of options that the file names without a value
 */
export function validate(schema: Option, given: unknown, empty: ReadonlySet<string> = new Set()): Validation {
  const problems: Problem[] = [];
  const report = (path: OptionPath, message: string): void => {
    problems.push({ path: pathText(path), message });
  };
  return { value: new Walk(report, empty).complete(schema, given, []), problems };
}

/** Returns the value if it is an object other than an array, otherwise null. */
export function asMapping(value: unknown): Readonly<Record<string, unknown>> | null {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Readonly<Record<string, unknown>>)
    : null;
}

class Walk {
  constructor(
    readonly report: (path: OptionPath, message: string) => void,
    readonly empty: ReadonlySet<string>,
  ) {}

  complete(option: Option, given: unknown, path: OptionPath): unknown {
    const inner = nonNull(option);
    const value = given === undefined ? option.default : given;
    if (value === null && inner !== option) {
      // Null would switch the group off, but the operator may have commented out all its options to get the defaults.
      if (inner.properties !== undefined && this.empty.has(pathText(path)))
        this.report(path, 'is empty; expected its options, {} for the defaults, or null');
      return null;
    }
    if (inner.properties !== undefined) return this.#completeSection(option, inner.properties, value, path);
    if (inner.patternProperties !== undefined) return this.#completeRecord(inner, value, path);
    if (inner.items !== undefined) return this.#completeList(inner, inner.items, value, path);
    return this.#completeScalar(option, given, path);
  }

  #completeSection(
    option: Option,
    properties: Readonly<Record<string, Option>>,
    value: unknown,
    path: OptionPath,
  ): unknown {
    // A YAML section is null if all its options are commented out. It then gets the defaults, like an empty file.
    const given = asMapping(value ?? {});
    if (given === null) this.#reportUnexpected(option, path);
    const names = Object.keys(properties);
    for (const name of Object.keys(given ?? {})) {
      if (!names.includes(name)) this.#reportUnknown(name, names, path);
    }
    // If the value is not a section, report only that. Complete the section with defaults, without reporting each
    // required option.
    const walk = given === null ? new Walk(() => undefined, this.empty) : this;
    return Object.fromEntries(
      Object.entries(properties).map(([name, child]) => [name, walk.complete(child, given?.[name], [...path, name])]),
    );
  }

  #completeRecord(option: Option, value: unknown, path: OptionPath): unknown {
    const given = asMapping(value);
    if (given === null) this.#reportUnexpected(option, path);
    const [[pattern, child] = ['', {}]] = Object.entries(option.patternProperties ?? {});
    const entries = Object.entries(given ?? {}).filter(([name]) => {
      const known = new RegExp(pattern).test(name);
      if (!known) this.report([...path, name], `is not a valid name; expected ${expectationOf(option)}`);
      return known;
    });
    return Object.fromEntries(entries.map(([name, entry]) => [name, this.complete(child, entry, [...path, name])]));
  }

  #completeList(option: Option, items: Option, value: unknown, path: OptionPath): unknown {
    if (!Array.isArray(value)) {
      this.#reportUnexpected(option, path);
      return [];
    }
    const most = option.maxItems ?? Infinity;
    if (value.length > most) this.report(path, `has ${value.length} entries; expected at most ${most}`);
    return value.slice(0, most).map((item: unknown, index) => this.complete(items, item ?? null, [...path, index]));
  }

  #completeScalar(option: Option, given: unknown, path: OptionPath): unknown {
    const standIn = option.default ?? nonNull(option).examples?.[0] ?? null;
    if (given === undefined) {
      if (option.default === undefined) this.report(path, `is required; expected ${expectationOf(option)}`);
      return standIn;
    }
    if (!Check(option as TSchema, given)) {
      this.#reportUnexpected(option, path);
      return standIn;
    }
    return given;
  }

  #reportUnexpected(option: Option, path: OptionPath): void {
    this.report(path, `expected ${expectationOf(option)}`);
  }

  #reportUnknown(name: string, names: readonly string[], path: OptionPath): void {
    const close = closestName(name, names);
    const choice = names.length > 8 ? 'the options that "merchant-gateway config defaults" prints' : names.join(', ');
    const hint = close === undefined ? `expected one of ${choice}` : `did you mean ${close}?`;
    this.report([...path, name], `is not an option; ${hint}`);
  }
}
