import Type, {
  type TNull,
  type TObject,
  type TProperties,
  type TSchema,
  type TSchemaOptions,
  type TString,
  type TUnion,
} from '../../typebox/typebox.js';

/**
 * Schema of an option, used for loading and for documentation. It is JSON Schema plus the keywords `expects` and
 * `holds`.
 */
export interface Option {
  readonly type?: string;
  readonly description?: string;
  readonly default?: unknown;
  readonly examples?: readonly unknown[];
  readonly enum?: readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly anyOf?: readonly Option[];
  readonly properties?: Readonly<Record<string, Option>>;
  readonly patternProperties?: Readonly<Record<string, Option>>;
  readonly items?: Option;
  readonly maxItems?: number;
  /** Describes the valid values. Error messages contain this phrase after the word "expected". */
  readonly expects?: string;
  /** How the value contains the path of a file; absent if it contains no path. */
  readonly holds?: PathForm;
}

/**
 * How a value contains the path of a file. `path`: it is a path. `destination`: a path or `stdout`. `source`: a path or
 * a URL. `database`: a path after `sqlite:`, or paths in the parameters of a `postgres://` URL.
 */
export type PathForm = 'path' | 'destination' | 'source' | 'database';

/** Keywords of an option's schema: those of JSON Schema plus `expects` and `holds`. */
export interface OptionKeywords extends TSchemaOptions {
  description: string;
  expects?: string;
  holds?: PathForm;
}

/** Schema of a group of options, in which unknown names are errors. */
export function section<Properties extends TProperties>(
  properties: Properties,
  keywords: OptionKeywords,
): TObject<Properties> {
  return Type.Object(properties, { additionalProperties: false, ...keywords });
}

/** Schema of an option that can be null. It is null by default, unless `keywords` has another default. */
export function nullable<Schema extends TSchema>(schema: Schema, keywords: OptionKeywords): TUnion<[Schema, TNull]> {
  return Type.Union([schema, Type.Null()], { default: null, ...keywords });
}

/** Schema for one line of text, 1 to 4096 characters long and without control characters. */
export function line(keywords: Partial<OptionKeywords>): TString {
  return Type.String({ pattern: '^[^\\u0000-\\u001f\\u007f]{1,4096}$', ...keywords });
}

/** Schema of a required file path. */
export function requiredFile(description: string, example: string): TString {
  return line({ description, expects: 'the path of a file', examples: [example], holds: 'path' });
}

/**
 * Schema of an optional file path, which is null by default.
 * @param example value that `config defaults` shows instead of null if the option's group is commented out
 */
export function optionalFile(description: string, example?: string): TUnion<[TString, TNull]> {
  const examples = example === undefined ? {} : { examples: [example] };
  return nullable(line({ expects: 'the path of a file', holds: 'path', ...examples }), { description });
}

/** Schema of the host and port of a listener. */
export function address(host: string, port: number) {
  return {
    host: line({
      default: host,
      description: 'Address to listen on. 0.0.0.0: all IPv4 addresses of the machine.',
      expects: 'an IP address or a host name',
    }),
    port: Type.Integer({
      minimum: 0,
      maximum: 65535,
      default: port,
      description: 'Port to listen on. 0: any free port.',
    }),
  };
}

/** Returns the non-null schema of a nullable option, and the schema of any other option unchanged. */
export function nonNull(option: Option): Option {
  return option.anyOf?.[0] ?? option;
}

/** Returns a phrase for the valid values of an option, which error messages contain after the word "expected". */
export function expectationOf(option: Option): string {
  const inner = nonNull(option);
  const words = option.expects ?? inner.expects ?? defaultExpectation(inner);
  return inner === option ? words : `${words}, or null`;
}

function defaultExpectation(option: Option): string {
  if (option.enum !== undefined) return oneOf(option.enum);
  if (option.type === 'integer') return `a whole number from ${option.minimum ?? 0} to ${option.maximum ?? 0}`;
  if (option.type === 'boolean') return 'true or false';
  if (option.type === 'array') return 'a list';
  if (option.type === 'object') return 'a group of options';
  return 'a string';
}

function oneOf(values: readonly string[]): string {
  return values.length < 2 ? values.join('') : `${values.slice(0, -1).join(', ')} or ${values.at(-1) ?? ''}`;
}
