import { readFileSync } from 'node:fs';
import { inspect } from 'node:util';
import { Ajv2020 } from 'ajv/dist/2020.js';
import t from 'tap';
import { Agent, request } from 'undici';
import { parse } from 'yaml';
import { run } from '../../src/cli/run.js';
import { readPublicApi } from '../../src/cli/openapi/public-api.js';
import { systemTimers } from '../../src/cli/compose/system-clock.js';
import { loadConfig } from '../../src/config/load.js';
import { ownPaths } from '../../src/policy/route-paths.js';
import { startServices } from '../../src/services/start-services.js';
import { ask, liveKey, startTestGateway } from '../edge/harness.js';
import { addWallet } from './services-fixture.js';

interface Schema {
  readonly type?: string;
  readonly enum?: readonly unknown[];
  readonly examples?: readonly unknown[];
  readonly required?: readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly anyOf?: readonly Schema[];
  readonly pattern?: string;
}

interface Operation {
  readonly operationId: string;
  readonly tags: readonly string[];
  readonly parameters: readonly { readonly name: string; readonly in: string; readonly schema: Schema }[];
  readonly requestBody?: { readonly content: { readonly 'application/json': { readonly schema: Schema } } };
  readonly responses: Readonly<Record<string, object>>;
}

interface Description {
  readonly openapi: string;
  readonly tags: readonly { readonly name: string }[];
  readonly components: { readonly responses: Readonly<Record<string, object>> };
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}

const committed = readFileSync('docs/openapi.yaml', 'utf8');
const description = parse(committed) as Description;
const merchant = { merchantId: 'm_1', environment: 'live' } as const;
const unknownIds = ['00000000-0000-4000-8000-000000000000', '999999999'];

/** The description as a schema that forbids undescribed fields in all objects. */
const closed = JSON.parse(JSON.stringify(description), (_, value: unknown) => {
  const isObject = typeof value === 'object' && value !== null && 'properties' in value && 'type' in value;
  return isObject ? { ...value, additionalProperties: false } : value;
}) as object;
const dateTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const ajv = new Ajv2020({ strict: false, formats: { 'date-time': dateTime } });
ajv.addSchema({ ...closed, $id: 'api' });

/** Compiles a validator for the schema at this path of the description. */
function checkAt(...place: string[]) {
  const pointer = place.map((part) => part.replaceAll('~', '~0').replaceAll('/', '~1')).join('/');
  const check = ajv.compile({ $ref: `api#/${encodeURI(pointer)}` });
  return (value: unknown): string | null => (check(value) ? null : ajv.errorsText(check.errors));
}

interface DescribedResponse {
  readonly headers?: object;
  readonly content?: Readonly<
    Record<string, { example?: { message: string }; examples?: Record<string, { value: { message: string } }> }>
  >;
}

function descriptionAt(place: readonly string[]): DescribedResponse {
  return place.reduce((it: object, part) => Reflect.get(it, part) as object, description);
}

t.test('docs/openapi.yaml matches the code', async (t) => {
  let printed = '';
  const io = { out: (text: string) => void (printed += text), err: () => undefined };
  t.equal(await run(['openapi'], io), 0);
  t.equal(printed, committed, 'out of date: run npm run openapi');
  printed = '';
  await run(['openapi', '--json'], io);
  t.same(JSON.parse(printed), description);
  const ids = Object.values(description.paths).flatMap((methods) =>
    Object.values(methods).map((one) => one.operationId),
  );
  t.equal(new Set(ids).size, ids.length, 'operation ids are unique');
  for (const name of Object.keys(description.components.responses)) {
    t.ok(committed.includes(`"#/components/responses/${name}"`), `${name} is used by an operation`);
  }
  const known = new Set(description.tags.map(({ name }) => name));
  const operations = Object.values(description.paths).flatMap((methods) => Object.values(methods));
  t.same(new Set(operations.flatMap((one) => one.tags)), known, 'each tag is used, and each operation has a known tag');
});

t.test("the gateway's own routes match the description, which one of them serves", async (t) => {
  const publicApi = readPublicApi(loadConfig({ text: '' }));
  const gateway = await startTestGateway(t, { publicApi });
  for (const path of ownPaths) {
    const { status, body } = await ask(gateway, { path: `/v1${path}`, headers: [['x-api-key', liveKey]] });
    t.equal(status, 200);
    const media = ['paths', path, 'get', 'responses', '200', 'content', 'application/json'];
    t.equal(checkAt(...media, 'schema')(JSON.parse(body)), null, path);
    if (path === '/openapi.json') t.same(JSON.parse(body), description);
    const { example } = media.reduce((it: object, part) => Reflect.get(it, part) as object, description) as {
      example?: object;
    };
    if (example !== undefined) t.equal(checkAt(...media, 'schema')(example), null, 'the example is valid');
    const operation = description.paths[path]?.get;
    t.same(
      ['401', '403', '404', '405', '429', '502', '503', '504'].filter((one) => one in (operation?.responses ?? {})),
      ['401', '429', '503'],
    );
  }
});

t.test('a 403 comes from the gateway only: services never send it to a merchant', (t) => {
  const { Failure403 } = description.components.responses;
  t.match(Failure403, { description: /^From the gateway: Forbidden$/ });
  t.notMatch(JSON.stringify(Failure403), /"forbidden"|bypass|did not come/);
  t.match(JSON.stringify(Failure403), '"gateway_permission_denied"');
  t.end();
});

t.test('the description has only what the routes of the configuration serve', (t) => {
  const pathsOf = (text: object): readonly string[] => {
    const api = JSON.parse(readPublicApi(loadConfig({ text: JSON.stringify(text) }))) as Description;
    const used = new Set(
      Object.values(api.paths).flatMap((methods) => Object.values(methods).flatMap((one) => one.tags)),
    );
    t.same(new Set(api.tags.map(({ name }) => name)), used);
    return Object.keys(api.paths);
  };
  t.same(pathsOf({}), Object.keys(description.paths));
  const upstream = { upstream: 'payouts', resource: 'payouts' };
  t.same(pathsOf({ routes: [{ path: '/payouts', ...upstream }] }), ['/payouts', ...ownPaths]);
  t.same(pathsOf({ routes: [{ path: '/whoami', ...upstream }] }), ['/openapi.json']);
  t.match(readPublicApi(loadConfig({ text: '{"basePath":"/api/v2"}' })), '"url":"https://{host}/api/v2"');
  t.end();
});

t.test('requests and responses through the gateway match the description', async (t) => {
  const services = await startServices({
    ...{ host: '127.0.0.1', port: 0, databaseUrl: 'sqlite::memory:', timers: systemTimers, assertions: null },
    clock: { now: () => Date.now() },
    bank: { delayMilliseconds: 3_600_000, failingAccounts: [] },
  });
  t.teardown(() => services.close());
  const walletId = await addWallet(services.database, merchant, { balance: 100_000_000, isDefault: true });
  const upstream = { url: services.url };
  const upstreams = { transactions: upstream, payouts: upstream, customers: upstream };
  const gateway = await startTestGateway(t, { config: { upstreams } });
  const agent = new Agent({ connect: { ca: gateway.ca } });
  t.teardown(() => agent.destroy());

  const ofServices = Object.entries(description.paths).filter(([path]) => !ownPaths.some((own) => own === path));
  const operations = ofServices.flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation, name: `${method} ${path}` })),
  );
  type Described = (typeof operations)[number];
  interface Sent {
    readonly id?: string;
    readonly query?: Readonly<Record<string, string>>;
    readonly body?: unknown;
    readonly payload?: string;
    readonly headers?: Readonly<Record<string, string>>;
  }
  const seen = new Map<string, number>();

  /** Sends a request, and validates its response against the description. */
  async function send(
    { path, method, operation, name }: Described,
    sent: Sent,
  ): Promise<{ status: number; body: Envelope }> {
    const query = new URLSearchParams(sent.query).toString();
    const target = path.replace('{id}', sent.id ?? '') + (query === '' ? '' : `?${query}`);
    const payload = sent.body === undefined ? sent.payload : JSON.stringify(sent.body);
    const received = await request(`https://127.0.0.1:${gateway.https}/v1${target}`, {
      method: method.toUpperCase() as 'GET',
      dispatcher: agent,
      headers: {
        'x-api-key': liveKey,
        ...(payload === undefined ? {} : { 'content-type': 'application/json' }),
        ...sent.headers,
      },
      ...(payload === undefined ? {} : { body: payload }),
    });
    const body = (await received.body.json()) as Envelope;
    const status = received.statusCode;
    seen.set(`${name} ${status}`, (seen.get(`${name} ${status}`) ?? 0) + 1);
    const what = `${name} ${JSON.stringify(sent).slice(0, 120)} ${status}`;
    const response = operation.responses[status];
    if (response === undefined) throw new Error(`${what} is not described`);
    const place =
      '$ref' in response
        ? String(response.$ref).split('/').slice(1)
        : ['paths', path, method, 'responses', String(status)];
    const problem = checkAt(...place, 'content', 'application/json', 'schema')(body);
    if (problem !== null) throw new Error(`${what}: ${problem}`);
    const { headers = {}, content = {} } = descriptionAt(place);
    const { example, examples = {} } = content['application/json'] ?? {};
    if (example !== undefined && example.message !== body.message) throw new Error(`${what}: "${body.message}"`);
    const code = body.success ? undefined : body.data?.code;
    const ofGateway = Object.values(examples).map((one) => one.value.message);
    const isShown = code === undefined ? body.success || ofGateway.includes(body.message) : code in examples;
    if (!isShown) throw new Error(`${what}: there is no example of ${code ?? body.message}`);
    const untold = ['idempotency-replayed', 'retry-after'].find((one) => one in received.headers && !(one in headers));
    if (untold !== undefined) throw new Error(`${what}: ${untold} is not described`);
    return { status, body };
  }
  interface Envelope {
    readonly success: boolean;
    readonly message: string;
    readonly data: {
      readonly id?: string;
      readonly code?: string;
      readonly errors?: readonly { readonly path: string }[];
    } | null;
  }

  let people = 0;
  const bodyOf = ({ operation }: Described): Record<string, unknown> => {
    const { properties = {} } = operation.requestBody?.content['application/json'].schema ?? {};
    const examples = Object.entries(properties).map(([name, one]) => [
      name,
      (one.examples ?? one.anyOf?.[0]?.examples)?.[0],
    ]);
    const body = Object.fromEntries(examples) as Record<string, unknown>;
    if ('walletId' in body) body.walletId = walletId;
    if ('reference' in body) body.reference = `invoice-${(people += 1)}`;
    if ('email' in body) body.email = `ada${(people += 1)}@example.com`;
    return body;
  };
  const named = (name: string) => operations.find((one) => one.name === name) ?? operations[0];
  const made = async (name: string) => {
    const operation = named(name);
    return operation === undefined ? '' : String((await send(operation, { body: bodyOf(operation) })).body.data?.id);
  };
  const ids: Readonly<Record<string, string>> = {
    payouts: await made('post /dev/payouts'),
    customers: await made('post /dev/customers'),
    wallets: walletId,
    transactions: '1',
  };
  const idOf = ({ path }: Described): string => ids[path.split('/').at(path.endsWith('}') ? -2 : -1) ?? ''] ?? '';
  // DELETE last: the other operations need the record.
  const inOrder = operations.toSorted(
    (one, other) => Number(one.method === 'delete') - Number(other.method === 'delete'),
  );

  for (const one of inOrder) {
    const { path, method, operation } = one;
    const id = idOf(one);
    const references: Readonly<Record<string, string>> = { up_to: id, walletId };
    const takesBody = operation.requestBody !== undefined;
    const valid = (): Sent => (takesBody ? { id, body: bodyOf(one) } : { id });
    const success = operation.responses['201'] === undefined ? 200 : 201;
    if (method !== 'delete') t.equal((await send(one, valid())).status, success, one.name);

    t.equal((await send(one, { ...valid(), headers: { 'x-api-key': 'svc_live_wrong' } })).status, 401);
    if (path.includes('{id}')) t.equal((await send(one, { ...valid(), id: '0' })).status, 404);
    for (const { name, in: place, schema } of operation.parameters.filter((parameter) => parameter.in === 'query')) {
      const isRight = ajv.compile(schema);
      // Query values are strings.
      const check = (text: unknown) => isRight(schema.type === 'integer' && text !== '' ? Number(text) : text);
      for (const value of [
        ...(schema.enum ?? []),
        ...(schema.examples ?? []),
        '',
        '0',
        '1',
        '101',
        'x',
        ' ',
        '\u0000',
      ]) {
        const query = { [name]: (check(value) ? references[name] : undefined) ?? String(value) };
        const response = await send(one, { id, query });
        t.equal(response.status, check(value) ? 200 : 422, `${one.name} ${place} ${name}=${JSON.stringify(value)}`);
      }
      const query = { [name]: String(unknownIds.find((value) => check(value))) };
      if (name in references) t.equal((await send(one, { id, query })).status, 404, `${one.name}: unknown ${name}`);
    }
    t.equal((await send(one, { ...valid(), query: { unknown: '1' } })).status, 422);
    if (!takesBody) continue;

    const check = checkAt('paths', path, method, 'requestBody', 'content', 'application/json', 'schema');
    t.equal(check(bodyOf(one)), null, 'the example is valid');
    const values = [undefined, null, true, '', ' ', 'x', 'a\nb', 'x'.repeat(300), -1, 0, 1.5, '100', 2 ** 53, [], {}];
    for (const field of [...Object.keys(bodyOf(one)), 'unknown']) {
      for (const value of values) {
        const body = { ...bodyOf(one), [field]: value };
        const isRight = check(JSON.parse(JSON.stringify(body))) === null;
        const response = await send(one, { id, body });
        const paths = response.body.data?.errors?.map((error) => error.path);
        // A valid reference can be refused as taken, if an earlier request of this test used the same one.
        const isTaken = field === 'reference' && response.body.data?.code === 'reference_taken';
        const expected = isRight ? (isTaken ? [] : undefined) : [field];
        t.same(paths, expected, `${one.name} ${field}: ${inspect(value).slice(0, 20)}`);
      }
    }
    t.equal((await send(one, { id, payload: '{"amount":1,"amount":2}' })).status, 422);
    t.equal((await send(one, { id, payload: 'x', headers: { 'content-type': 'text/plain' } })).status, 415);
    t.equal((await send(one, { id, payload: `"${'x'.repeat(1024 * 1024)}"` })).status, 413);
    if (method !== 'post') continue;
    const headers = { 'idempotency-key': one.name.replaceAll(' ', '-') };
    const body = bodyOf(one);
    t.same((await send(one, { body, headers })).body, (await send(one, { body, headers })).body);
    t.equal((await send(one, { body: bodyOf({ ...one }), headers: { 'idempotency-key': 'a b' } })).status, 422);
    const other = { ...body, ...('amount' in body ? { amount: 7 } : { lastName: 'Other' }) };
    t.equal((await send(one, { body: other, headers })).status, 422);
  }
  const customers = named('post /dev/customers');
  const removal = named('delete /dev/customers/{id}');
  if (customers === undefined || removal === undefined) throw new Error('there are no operations');
  const twice = bodyOf(customers);
  await send(customers, { body: twice });
  t.equal((await send(customers, { body: twice })).status, 409);
  t.equal((await send(removal, { id: idOf(removal) })).status, 200);

  for (const { name, operation } of operations) {
    const success = operation.responses['201'] === undefined ? 200 : 201;
    t.ok(seen.get(`${name} ${success}`), `${name} succeeded at least once`);
  }
});
