import type { FastifyError, FastifyRequest, FastifySchema, FastifySchemaCompiler, FastifyTypeProvider } from 'fastify';
import { Compile, type Static, type TObject, type TSchema } from '../typebox/typebox.js';
import type { Problem } from './envelope.js';
import { Refusal } from './refusal.js';

/** Gives route handlers the static types of their typebox schemas. */
export interface TypeboxProvider extends FastifyTypeProvider {
  validator: this['schema'] extends TSchema ? Static<this['schema']> : unknown;
}

const mostUnknownFields = 20;
const longestName = 64;

/** Validates requests against flat typebox objects, and never converts, adds or removes a field. */
export const validatorCompiler: FastifySchemaCompiler<FastifySchema & TObject> = ({ schema, httpPart }) => {
  const problemsOf = fieldProblems(schema, httpPart === 'querystring' ? 'query parameter' : 'field');
  return (value: unknown) => {
    const [first, ...others] = problemsOf(value);
    return first === undefined ? { value } : { error: Refusal.invalid([first, ...others]) };
  };
};

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Returns the problems of those parts of a request that no schema describes, such as a header. */
    otherProblems?: (request: FastifyRequest) => readonly Problem[];
  }
}

const parts = [
  ['params', 'params'],
  ['body', 'body'],
  ['querystring', 'query'],
] as const;

/**
 * Adds the problems of all other parts of a request to a validation error, because Fastify stops at the first invalid
 * part. Returns any other error unchanged.
 */
export function withAllProblems(error: FastifyError | Refusal, request: FastifyRequest): FastifyError | Refusal {
  if (!(error instanceof Refusal) || !('validationContext' in error)) return error;
  const ofParts = parts.flatMap(([part, name]) => {
    const result: unknown = request.getValidationFunction(part)?.(request[name]);
    return (result as { readonly error?: Refusal } | undefined)?.error?.problems ?? [];
  });
  const others = request.routeOptions.config.otherProblems?.(request) ?? [];
  const [first, ...further] = [...ofParts, ...others];
  return first === undefined ? error : Refusal.invalid([first, ...further]);
}

/** Returns null for a valid value. For any other value, returns the words that follow "must be" in the message. */
type Check<Value> = (value: Value) => string | null;

/** Adds a check that a JSON schema cannot express. Only values that match the schema are checked. */
export function withCheck<Schema extends TSchema>(schema: Schema, check: Check<Static<Schema>>): Schema {
  return { ...schema, check };
}

const validators = new WeakMap<TSchema, ReturnType<typeof Compile>>();

/**
 * Returns the validator of a field. Compiles it only once, because the admin API and the console have the same routes
 * and fields.
 */
function validatorOf(field: TSchema): ReturnType<typeof Compile> {
  const known = validators.get(field) ?? Compile(field);
  validators.set(field, known);
  return known;
}

/**
 * Creates the function that returns the problems of a flat object. Each field has its own validator. So each problem is
 * reported once, in the order of the schema, with the description of its field.
 */
export function fieldProblems(schema: TObject, kind: string): (value: unknown) => Problem[] {
  const names = Object.keys(schema.properties);
  const required = new Set<string>(schema.required);
  const fewest = 'minProperties' in schema ? Number(schema.minProperties) : 0;
  const checks = Object.entries(schema.properties).map(([name, field]) => {
    const validator = validatorOf(field);
    const expected = 'description' in field ? String(field.description) : 'in a valid form';
    const check = 'check' in field ? (field.check as Check<unknown>) : () => null;
    return (fields: object): Problem | null => {
      if (!Object.hasOwn(fields, name))
        return required.has(name) ? { path: name, message: `${name} is required` } : null;
      const value: unknown = Reflect.get(fields, name);
      const missed = validator.Check(value) ? check(value) : expected;
      return missed === null ? null : { path: name, message: `${name} must be ${missed}` };
    };
  });
  return (value) => {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      return [{ path: '', message: 'The body must be a JSON object' }];
    }
    const problems = checks.map((problemIn) => problemIn(value)).filter((problem) => problem !== null);
    const unknown = Object.keys(value).filter((name) => !Object.hasOwn(schema.properties, name));
    for (const name of unknown.slice(0, mostUnknownFields)) {
      const shown = name.slice(0, longestName);
      problems.push({ path: shown, message: `${shown} is not a known ${kind}` });
    }
    if (problems.length === 0 && Object.keys(value).length < fewest) {
      problems.push({ path: '', message: `At least one of ${names.join(', ')} is required` });
    }
    return problems;
  };
}
