import { readFileSync } from 'node:fs';
import { Ajv2020 } from 'ajv/dist/2020.js';
import t, { type Test } from 'tap';
import { parse } from 'yaml';
import { ownPaths } from '../../../src/policy/route-paths.js';
import { ownerColumns } from '../../../src/services/services-database.js';
import { merchantA, servicesFixture, startOfTest } from '../services-fixture.js';

interface Media {
  readonly schema: object;
  readonly example?: unknown;
  readonly examples?: Readonly<Record<string, { readonly value: unknown }>>;
}

interface Described {
  readonly description?: string;
  readonly $ref?: string;
  readonly content?: { readonly 'application/json': Media };
}

interface Operation {
  readonly parameters: readonly {
    readonly name: string;
    readonly in: string;
    readonly schema: object;
    readonly example?: unknown;
  }[];
  readonly requestBody?: { readonly content: { readonly 'application/json': Media } };
  readonly responses: Readonly<Record<string, Described>>;
}

interface Description {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly responses: Readonly<Record<string, Described>> };
}

const description = parse(readFileSync('docs/openapi.yaml', 'utf8')) as Description;
/** The id in every example except those of transactions. */
const id = '0b8f6f0e-4c9b-4a35-9b52-3a4d5f6e7a80';

/** The description as a schema that forbids undescribed fields in all objects. */
const closed = JSON.parse(JSON.stringify(description), (_, value: unknown) => {
  const isObject = typeof value === 'object' && value !== null && 'properties' in value && 'type' in value;
  return isObject ? { ...value, additionalProperties: false } : value;
}) as object;
const ajv = new Ajv2020({ strict: false, formats: { 'date-time': /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/ } });
ajv.addSchema({ ...closed, $id: 'api' });

/** Validation errors of a value against the schema at this path; null if it is valid. */
function problemAt(place: readonly string[], value: unknown): string | null {
  const pointer = place.map((part) => part.replaceAll('~', '~0').replaceAll('/', '~1')).join('/');
  const check = ajv.compile({ $ref: `api#/${encodeURI(pointer)}` });
  return check(value) ? null : ajv.errorsText(check.errors);
}

/** The operations of the services; test/services/openapi-contract.test.ts has those of the gateway itself. */
const operations = Object.entries(description.paths)
  .filter(([path]) => !ownPaths.some((own) => own === path))
  .flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation, name: `${method} ${path}` })),
  );
type Named = (typeof operations)[number];

/** The path at which a response is described, possibly in the components. */
function placeOf({ path, method, operation }: Named, status: string): string[] {
  const ref = operation.responses[status]?.$ref;
  return ref === undefined ? ['paths', path, method, 'responses', status] : ref.split('/').slice(1);
}

function responseAt(place: readonly string[]): Described {
  return place.reduce((it: object, part) => Reflect.get(it, part) as object, description);
}

/** Services whose records have the ids of the examples, except for a record that the operation creates. */
async function servicesOfExamples(t: Test, creates: boolean) {
  const services = await servicesFixture(t);
  const { database } = services;
  const owner = { ...ownerColumns(merchantA), created_at: startOfTest };
  const money = { currency: 'NGN', balance: 1_000_000, is_default: 1 };
  await database
    .insertInto('wallets')
    .values({ ...owner, ...money, id })
    .execute();
  const payout = {
    status: 'pending',
    ...{
      id,
      wallet_id: id,

      amount: 1,
      currency: 'NGN',
      reference: 'R',
      recipient: '+2348012345678',
    },
    ...{ due_at: startOfTest, updated_at: startOfTest, merchant_reference: creates ? null : 'invoice-42' },
  } as const;
  await database
    .insertInto('payouts')
    .values({ ...owner, ...payout })
    .execute();
  const movement = {
    type: 'debit',
    status: 'pending',
    amount: 1,
    currency: 'NGN',
    reference: 'R',
    balance_after: 1,
  } as const;
  await database
    .insertInto('transactions')
    .values({ ...owner, ...movement, wallet_id: id, payout_id: id })
    .execute();
  const names = { email: 'ada@example.com', first_name: 'Ada', last_name: 'Obi', search_text: 'ada obi' };
  const customer = { ...owner, ...names, id, updated_at: startOfTest };
  if (!creates) await database.insertInto('customers').values(customer).execute();
  return services;
}

for (const named of operations) {
  const { path, method, operation, name } = named;
  const created = Object.hasOwn(operation.responses, '201');
  const success = created ? '201' : '200';

  t.test(`the example of ${name} gets its documented response`, async (t) => {
    const { call } = await servicesOfExamples(t, created);
    const media = operation.requestBody?.content['application/json'];
    t.equal(
      media === undefined,
      method === 'get' || method === 'delete',
      'exactly the methods with a body have an example body',
    );
    const body = media?.example;
    if (media !== undefined) {
      t.not(body, undefined);
      const place = ['paths', path, method, 'requestBody', 'content', 'application/json', 'schema'];
      t.equal(problemAt(place, body), null, 'the example body matches its schema');
    }
    for (const parameter of operation.parameters) {
      t.not(parameter.example, undefined, `${parameter.name} has an example`);
      t.ok(ajv.validate(parameter.schema, parameter.example), `the example of ${parameter.name} matches its schema`);
    }
    const target = operation.parameters
      .filter((one) => one.in === 'path')
      .reduce((url, one) => url.replace(`{${one.name}}`, String(one.example)), path);
    t.notMatch(target, '{', 'each path parameter has an example');
    const headers = Object.fromEntries(
      operation.parameters.filter((one) => one.in === 'header').map((one) => [one.name, String(one.example)]),
    );
    const place = [...placeOf(named, success), 'content', 'application/json', 'schema'];
    const queries = operation.parameters.filter((one) => one.in === 'query');
    for (const one of [null, ...queries]) {
      const query = one === null ? '' : `?${one.name}=${encodeURIComponent(String(one.example))}`;
      const details = { headers, ...(body === undefined ? {} : { body }) };
      const response = await call(merchantA, method.toUpperCase(), `${target}${query}`, details);
      t.equal(response.status, Number(success), `${target}${query}: ${response.body.message}`);
      t.equal(problemAt(place, response.body), null, `${target}${query}`);
    }
  });

  t.test(`the response examples of ${name} match their schemas`, (t) => {
    for (const status of Object.keys(operation.responses)) {
      const place = placeOf(named, status);
      const { content, description: words } = responseAt(place);
      const media = content?.['application/json'];
      t.ok((words ?? '').length > 3, `${status} is described`);
      const examples = media?.examples ?? (media?.example === undefined ? {} : { it: { value: media.example } });
      t.not(Object.keys(examples).length, 0, `${status} has an example`);
      for (const [code, { value }] of Object.entries(examples)) {
        t.equal(problemAt([...place, 'content', 'application/json', 'schema'], value), null, `${status} ${code}`);
      }
    }
    t.end();
  });
}

t.test('only operations that read the Idempotency-Key mention it in their responses', async (t) => {
  interface Described {
    readonly parameters: readonly { readonly name: string }[];
    readonly responses: object;
  }
  const { openApi } = await servicesFixture(t);
  const paths = openApi().paths as unknown as Readonly<Record<string, Readonly<Record<string, Described>>>>;
  let others = 0;
  for (const [path, methods] of Object.entries(paths)) {
    for (const [method, { parameters, responses }] of Object.entries(methods)) {
      if (parameters.some(({ name }) => name === 'Idempotency-Key')) continue;
      others += 1;
      t.notMatch(JSON.stringify(responses), 'Idempotency-Key', `${method} ${path}`);
    }
  }
  t.ok(others > 0, `${others} operations`);
});
