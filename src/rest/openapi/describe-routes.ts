import type { FastifyContextConfig, RouteOptions } from 'fastify';
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

/** A route that the OpenAPI description contains. */
export interface DescribedRoute {
  /** HTTP method in lower case. */
  readonly method: string;
  readonly path: string;
  readonly operation: Operation;
  readonly schema: RouteOptions['schema'];
  /** Fastify's `config` of the route. */
  readonly config: FastifyContextConfig;
}

/** The parts of an OpenAPI description that concern the whole API. */
export interface ApiDescription {
  readonly info: { readonly title: string; readonly version: string; readonly description: string };
  readonly security: Readonly<Record<string, object>>;
  /**
   * Returns the failures that a route has in common with all routes of its kind, for example of its method. The result
   * maps each status to a description.
   */
  readonly failuresOf: (route: DescribedRoute) => Readonly<Record<number, string>>;
  /** Schemas of additional properties in a failure's `data`, besides `code` and `errors`. */
  readonly failureDetails?: TProperties;
  /** Returns example bodies of a route's failures with one status, by failure code. */
  readonly failureExamples?: (route: DescribedRoute, status: number) => FailureExamples;
  /** Returns the request headers that a route reads, as OpenAPI parameters. */
  readonly headersOf: (route: DescribedRoute) => readonly object[];
  /** Returns further properties for the description of a route. Their names begin with `x-`. */
  readonly extensionsOf?: (route: DescribedRoute) => object;
  /** Returns the response headers of a route, by status. */
  readonly responseHeaders?: (route: DescribedRoute) => Readonly<Record<number, object>>;
  /** Returns descriptions of further success responses of a route, by status. */
  readonly otherResponses?: (route: DescribedRoute) => Readonly<Record<number, string>>;
}

/** The parts of an OpenAPI 3.1 description that this program reads. */
export interface OpenApi {
  readonly openapi: '3.1.0';
  readonly info: ApiDescription['info'];
  readonly security: readonly object[];
  readonly components: { readonly securitySchemes: object; readonly schemas: object };
  readonly paths: Readonly<Record<string, Readonly<Record<string, DescribedOperation>>>>;
}

/** One operation of an OpenAPI description. */
export interface DescribedOperation {
  readonly responses: Readonly<Record<string, DescribedResponse>>;
}

/** The description of an operation's response with one status. */
export interface DescribedResponse {
  readonly description: string;
  readonly headers?: object;
  readonly content: {
    readonly 'application/json'?: { readonly examples?: FailureExamples };
    readonly 'text/event-stream'?: object;
  };
}

/** Example bodies of error responses, by failure code. */
export type FailureExamples = Readonly<Record<string, { readonly value: unknown }>>;

/**
 * Collects the routes that are added after this call, and describes them in OpenAPI 3.1. The schemas that validate the
 * requests also serve as their description.
 * @returns a function that builds the description; call it after all routes were added
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
      config,
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
  const responsesByStatus: Readonly<Record<string, DescribedResponse>> = {
    [operation.status ?? 200]: successResponse('Done', operation),
    ...mapValues(api.otherResponses?.(route) ?? {}, (text) => successResponse(text, operation)),
    ...mapValues(failures, (text, status) => failureResponse(text, api.failureExamples?.(route, Number(status)))),
  };
  const allHeaders = api.responseHeaders?.(route) ?? {};
  const responses = Object.entries(responsesByStatus).map(([status, one]): [string, DescribedResponse] => {
    const headers = allHeaders[Number(status)];
    return [status, headers === undefined ? one : { description: one.description, headers, content: one.content }];
  });
  return {
    ...words,
    ...api.extensionsOf?.(route),
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

function successResponse(description: string, operation: Operation): DescribedResponse {
  if (operation.isStream === true) {
    return { description: 'Server-sent events', content: { 'text/event-stream': { schema: { type: 'string' } } } };
  }
  const schema = byName(successSchema(operation)) as object;
  return { description, content: { 'application/json': withExample(schema, successExample(operation)) } };
}

/** Builds an example body of a success response; undefined if the schema of the records has no examples. */
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

/** Builds the OpenAPI response object of a failure. */
export function failureResponse(description: string, examples: FailureExamples = {}) {
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

/** The parts of a route's description that its request schemas do not contain. */
interface Operation {
  readonly summary: string;
  /** Schema of the request body for the description, if it is more precise than the schema for validation. */
  readonly body?: TSchema;
  /** Schema of `data` in a success response with one record. */
  readonly data?: TSchema;
  /** Schema of each record in a success response with a page of a list. */
  readonly page?: TSchema;
  /** Set if a success response is a stream of server-sent events. */
  readonly isStream?: true;
  /** Set if the operation only reads, even if its HTTP method suggests a change. */
  readonly isRead?: true;
  /** Success status, if it is not 200. */
  readonly status?: 201;
  /** The success message in the example response. */
  readonly message?: string;
  /** Fields of `data` whose values in the example response differ from the schema's examples. */
  readonly example?: Readonly<Record<string, unknown>>;
  /** Special failure codes that this route can return, in addition to those of every route with its method. */
  readonly codes?: readonly string[];
  /** Descriptions of failures, by status, in addition to `failuresOf`. For the same status, these descriptions win. */
  readonly failures?: Readonly<Record<number, string>>;
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Description of the route's operation; undefined if the OpenAPI description omits the route. */
    operation?: Operation;
    /** Set if the route requires neither a token nor an identified merchant. */
    isOpen?: true;
  }
}
