import type { RouteOptions } from 'fastify';
import Type, { type TObject, type TProperties, type TSchema } from '../../typebox/typebox.js';
import type { RestApp } from '../rest-app.js';
import {
  byName,
  closed,
  exampleOf,
  failureSchema,
  namedSchemas,
  pageSchema,
  parametersIn,
  recordSchema,
} from './json-schema.js';

/** A route that is part of the described API. */
export interface DescribedRoute {
  /** In lower case. */
  readonly method: string;
  readonly path: string;
  readonly operation: Operation;
  readonly schema: RouteOptions['schema'];
}

/** What an API says of itself as a whole. */
export interface ApiDescription {
  readonly info: { readonly title: string; readonly version: string; readonly description: string };
  readonly security: Readonly<Record<string, object>>;
  /** The failures of a route, by status, beside its own. */
  readonly failuresOf: (route: DescribedRoute) => Readonly<Record<number, string>>;
  /** What `data` of a failure may have beside the code. */
  readonly failureDetails?: TProperties;
  /** The envelopes of a route's failures of one status, by their codes. */
  readonly failureExamples?: (route: DescribedRoute, status: number) => FailureExamples;
  /** Headers that a route looks at. */
  readonly headersOf: (route: DescribedRoute) => readonly object[];
  /** Headers that an answer of a route may bear, by its status. */
  readonly answerHeaders?: (route: DescribedRoute) => Readonly<Record<number, object>>;
  /** A second way to succeed. */
  readonly alsoAnswers?: (route: DescribedRoute) => Readonly<Record<number, string>>;
}

/** A description in OpenAPI 3.1, as far as this program reads it again. */
export interface OpenApi {
  readonly openapi: '3.1.0';
  readonly info: ApiDescription['info'];
  readonly security: readonly object[];
  readonly components: { readonly securitySchemes: object; readonly schemas: object };
  readonly paths: Readonly<Record<string, Readonly<Record<string, DescribedOperation>>>>;
}

/** One operation of a description. */
export interface DescribedOperation {
  readonly responses: Readonly<Record<string, DescribedAnswer>>;
}

/** An answer of one status. */
export interface DescribedAnswer {
  readonly description: string;
  readonly headers?: object;
  readonly content: { readonly 'application/json': { readonly examples?: FailureExamples } };
}

/** Envelopes of failures, by their codes. */
export type FailureExamples = Readonly<Record<string, { readonly value: unknown }>>;

/**
 * Describes the routes that are added after this in OpenAPI 3.1, from the very schemas by which requests are checked.
 * @returns the description, once all routes are there
 */
export function describeRoutes(app: RestApp, api: ApiDescription): () => OpenApi {
  const routes: DescribedRoute[] = [];
  app.addHook('onRoute', ({ method, url, schema, config }) => {
    if (config?.operation === undefined || typeof method !== 'string' || method === 'HEAD') return;
    routes.push({
      method: method.toLowerCase(),
      path: url.replaceAll(/:(\w+)/g, '{$1}'),
      operation: config.operation,
      schema,
    });
  });
  return () => ({
    openapi: '3.1.0',
    info: api.info,
    security: [Object.fromEntries(Object.keys(api.security).map((name) => [name, []]))],
    components: { securitySchemes: api.security, schemas: schemasOf(routes, api) },
    paths: pathsOf(routes, api),
  });
}

function schemasOf(routes: readonly DescribedRoute[], { failureDetails = {} }: ApiDescription): object {
  return namedSchemas([failureSchema(failureDetails), ...routes.flatMap(recordsOf)]);
}

function recordsOf({ operation: { data, page } }: DescribedRoute): TSchema[] {
  return [data, page].filter((schema) => schema !== undefined);
}

function pathsOf(routes: readonly DescribedRoute[], api: ApiDescription): OpenApi['paths'] {
  const paths: Record<string, Record<string, DescribedOperation>> = {};
  for (const route of routes) (paths[route.path] ??= {})[route.method] = describe(route, api);
  return paths;
}

function describe(route: DescribedRoute, api: ApiDescription): DescribedOperation {
  const { method, path, operation, schema } = route;
  const body = operation.body ?? (schema?.body as TSchema | undefined);
  const failures = { ...api.failuresOf(route), ...operation.failures };
  const words = {
    summary: operation.summary,
    operationId: `${method}${path.replaceAll(/[^A-Za-z]+(\w?)/g, (_, next: string) => next.toUpperCase())}`,
    parameters: [
      ...parametersIn('path', schema?.params as TObject | undefined),
      ...parametersIn('query', schema?.querystring as TObject | undefined),
      ...api.headersOf(route),
    ],
  };
  const answers: Readonly<Record<string, DescribedAnswer>> = {
    [operation.status ?? 200]: answer('Done', operation),
    ...mapValues(api.alsoAnswers?.(route) ?? {}, (text) => answer(text, operation)),
    ...mapValues(failures, (text, status) => failureAnswer(text, api.failureExamples?.(route, Number(status)))),
  };
  const allHeaders = api.answerHeaders?.(route) ?? {};
  const responses = Object.entries(answers).map(([status, one]): [string, DescribedAnswer] => {
    const headers = allHeaders[Number(status)];
    return [status, headers === undefined ? one : { description: one.description, headers, content: one.content }];
  });
  return {
    ...words,
    ...(body === undefined
      ? {}
      : {
          requestBody: { required: true, content: { 'application/json': withExample(closed(body), exampleOf(body)) } },
        }),
    responses: Object.fromEntries(responses),
  };
}

function successSchema({ data = Type.Null(), page }: Operation): TSchema {
  return page === undefined ? recordSchema(data) : pageSchema(page);
}

function answer(description: string, operation: Operation): DescribedAnswer {
  const schema = byName(successSchema(operation)) as object;
  return { description, content: { 'application/json': withExample(schema, successExample(operation)) } };
}

/** The envelope of success, where the records of the operation have examples. */
function successExample({ data = Type.Null(), page, message = 'Done', example = {} }: Operation): unknown {
  const record = exampleOf(page ?? data);
  if (record === undefined) return undefined;
  const shown = record === null ? null : { ...record, ...example };
  const meta = { total_records: 1, current_page: 1, total_pages: 1, per_page: 20 };
  return { success: true, message, ...(page === undefined ? { data: shown } : { data: [shown], meta }) };
}

function withExample(schema: object, example: unknown): object {
  return { schema, ...(example === undefined ? {} : { example }) };
}

/** The description of a failure, in the envelope. */
export function failureAnswer(description: string, examples: FailureExamples = {}) {
  const schema = { $ref: '#/components/schemas/Failure' };
  const shown = Object.keys(examples).length === 0 ? {} : { examples };
  return { description, content: { 'application/json': { schema, ...shown } } };
}

function mapValues<Value, Result>(
  record: Readonly<Record<string, Value>>,
  act: (value: Value, name: string) => Result,
) {
  return Object.fromEntries(Object.entries(record).map(([name, value]) => [name, act(value, name)]));
}

/** What a route says of itself in the API's description, besides the schemas by which its requests are checked. */
interface Operation {
  readonly summary: string;
  /** Of the request, where it is described more closely than its schema checks. */
  readonly body?: TSchema;
  /** Of the answer: one record, */
  readonly data?: TSchema;
  /** or a page of them. */
  readonly page?: TSchema;
  /** It changes nothing, though its method may say otherwise. */
  readonly isRead?: true;
  /** The status of success, where it is not 200. */
  readonly status?: 201;
  /** The message of success, for the example of its answer. */
  readonly message?: string;
  /** Fields of `data` in that example, where they are not those of its schema. */
  readonly example?: Readonly<Record<string, unknown>>;
  /** Codes of failures that not every route of its kind has. */
  readonly codes?: readonly string[];
  /** Failures that it has beyond those of every route of its kind, by status. */
  readonly failures?: Readonly<Record<number, string>>;
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The route is part of the described API. */
    operation?: Operation;
    /** The route can be asked without a token. */
    isOpen?: true;
  }
}
