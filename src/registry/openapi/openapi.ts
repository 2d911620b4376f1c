import type { RouteOptions } from 'fastify';
import Type, { type TObject, type TSchema } from 'typebox';
import type { RestApp } from '../../rest/rest-app.js';
import type { Operation } from './operation.js';

interface DescribedRoute {
  readonly method: string;
  readonly path: string;
  readonly operation: Operation;
  readonly schema: RouteOptions['schema'];
}

const failures: Readonly<Record<number, string>> = {
  400: 'The request cannot be read',
  401: 'The token is missing or wrong',
  404: 'There is no such record',
  409: 'The record is in another state',
  422: 'Fields cannot be accepted; data.errors names each of them',
  503: 'A database is away',
};

const failure = Type.Object({
  success: Type.Literal(false),
  message: Type.String(),
  data: Type.Union([
    Type.Null(),
    Type.Object({ errors: Type.Array(Type.Object({ path: Type.String(), message: Type.String() })) }),
  ]),
});

const pageMeta = Type.Object({
  total_records: Type.Integer(),
  current_page: Type.Integer(),
  total_pages: Type.Integer(),
  per_page: Type.Integer(),
});

/**
 * Describes the routes that are added after this in OpenAPI 3.1, from the very schemas by which requests are checked.
 * @returns the description, once all routes are there
 */
export function describeRoutes(app: RestApp): () => object {
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
    info: {
      title: 'merchant-gateway registry',
      version: '1',
      description: 'Administration of merchants and their API keys. A key is shown once, in the answer that makes it.',
    },
    security: [{ token: [] }],
    components: {
      securitySchemes: { token: { type: 'http', scheme: 'bearer' } },
      schemas: { Failure: plain(failure) },
    },
    paths: pathsOf(routes),
  });
}

function pathsOf(routes: readonly DescribedRoute[]): object {
  const paths: Record<string, Record<string, object>> = {};
  for (const route of routes) (paths[route.path] ??= {})[route.method] = describe(route);
  return paths;
}

function describe({ method, path, operation, schema }: DescribedRoute): object {
  const { summary, status = 200 } = operation;
  const body = operation.body ?? (schema?.body as TSchema | undefined);
  const isChange = method !== 'get' && operation.isRead !== true;
  const actor = {
    name: 'x-actor',
    in: 'header',
    description: 'In whose name',
    schema: { type: 'string', maxLength: 64 },
  };
  const success = answer('Done', successSchema(operation));
  const accepted = answer('Kept, but not yet written to the store of the gateways', successSchema(operation));
  return {
    summary,
    operationId: `${method}${path.replaceAll(/[^A-Za-z]+(\w?)/g, (_, next: string) => next.toUpperCase())}`,
    parameters: [
      ...parametersIn('path', schema?.params as TObject | undefined),
      ...parametersIn('query', schema?.querystring as TObject | undefined),
      ...(isChange ? [actor] : []),
    ],
    ...(body === undefined
      ? {}
      : { requestBody: { required: true, content: { 'application/json': { schema: closed(body) } } } }),
    responses: {
      [status]: success,
      ...(isChange ? { 202: accepted } : {}),
      ...Object.fromEntries(Object.entries(failures).map(([code, text]) => [code, failureAnswer(text)])),
    },
  };
}

function successSchema({ data = Type.Null(), page }: Operation): TSchema {
  const common = { success: Type.Literal(true), message: Type.String() };
  return page === undefined
    ? Type.Object({ ...common, data })
    : Type.Object({ ...common, data: Type.Array(page), meta: pageMeta });
}

function parametersIn(place: 'path' | 'query', schema: TObject | undefined): object[] {
  const required = new Set<string>(schema?.required);
  return Object.entries(schema?.properties ?? {}).map(([name, field]) => ({
    ...{ name, in: place, required: required.has(name), schema: plain(field) },
  }));
}

function answer(description: string, schema: TSchema): object {
  return { description, content: { 'application/json': { schema: plain(schema) } } };
}

function failureAnswer(description: string): object {
  return { description, content: { 'application/json': { schema: { $ref: '#/components/schemas/Failure' } } } };
}

/** Unknown fields are refused, which the check does by itself. */
function closed(body: TSchema): object {
  return { ...(plain(body) as object), additionalProperties: false };
}

/** As JSON: a pattern as its text, and without what typebox keeps for itself. */
function plain(schema: unknown): unknown {
  return JSON.parse(
    JSON.stringify(schema, (_, value: unknown) => (value instanceof RegExp ? value.source : value)),
  ) as unknown;
}
