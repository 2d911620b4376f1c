import Type, {
  type TNull,
  type TObject,
  type TProperties,
  type TSchema,
  type TSchemaOptions,
  type TString,
  type TUnion,
} from '../../typebox/typebox.js';

/** An option's schema as the loader and the documentation walk over it: JSON Schema and a keyword of our own. */
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
  /** What a value looks like, in plain words that go after "expected". */
  readonly expects?: string;
  /** The value is, or may be, the path of a file. */
  readonly holds?: HeldPath;
}

/** How the path of a file stands in a value: alone, or `stdout`; alone, or a URL; behind `sqlite:`, or in a `postgres://` URL. */
export type HeldPath = 'path' | 'destination' | 'source' | 'database';

/** Our own keyword beside those of JSON Schema, for use in a schema's options. */
export interface OptionKeywords extends TSchemaOptions {
  description: string;
  expects?: string;
  holds?: HeldPath;
}

/** A group of options; a name that it does not have is an error. */
export function section<Properties extends TProperties>(
  properties: Properties,
  keywords: OptionKeywords,
): TObject<Properties> {
  return Type.Object(properties, { additionalProperties: false, ...keywords });
}

/** An option that can also be null. */
export function nullable<Schema extends TSchema>(schema: Schema, keywords: OptionKeywords): TUnion<[Schema, TNull]> {
  return Type.Union([schema, Type.Null()], { default: null, ...keywords });
}

/** One line of text without control characters. */
export function line(keywords: Partial<OptionKeywords>): TString {
  return Type.String({ pattern: '^[^\\u0000-\\u001f\\u007f]{1,4096}$', ...keywords });
}

/** A path of a file that has to be given. */
export function requiredFile(description: string, example: string): TString {
  return line({ description, expects: 'the path of a file', examples: [example], holds: 'path' });
}

/** A path of a file, or null for none. */
export function optionalFile(description: string, keywords: Partial<OptionKeywords> = {}): TUnion<[TString, TNull]> {
  return nullable(line({ expects: 'the path of a file', holds: 'path' }), { description, ...keywords });
}

/** Where a listener listens. */
export function address(host: string, port: number) {
  return {
    host: line({
      default: host,
      description: 'Address to listen on. 0.0.0.0 is every IPv4 address of the machine.',
      expects: 'an IP address or a host name',
    }),
    port: Type.Integer({
      minimum: 0,
      maximum: 65535,
      default: port,
      description: 'Port to listen on. 0 takes any free one.',
    }),
  };
}

/** The schema of the values of an option that can also be null, or the option itself. */
export function nonNull(option: Option): Option {
  return option.anyOf?.[0] ?? option;
}

/** What an option takes, in plain words that go after "expected". */
export function expectationOf(option: Option): string {
  const inner = nonNull(option);
  const words = option.expects ?? inner.expects ?? wordsOf(inner);
  return inner === option ? words : `${words}, or null`;
}

function wordsOf(option: Option): string {
  if (option.enum !== undefined) return oneOf(option.enum);
  if (option.type === 'integer') return `a whole number from ${option.minimum ?? 0} to ${option.maximum ?? 0}`;
  if (option.type === 'boolean') return 'true or false';
  if (option.type === 'array') return 'a list';
  if (option.type === 'object') return 'a group of options';
  return 'a text';
}

function oneOf(values: readonly string[]): string {
  return values.length < 2 ? values.join('') : `${values.slice(0, -1).join(', ')} or ${values.at(-1) ?? ''}`;
}
