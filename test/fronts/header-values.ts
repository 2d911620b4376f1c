import t from 'tap';
import { gatewayErrors } from '../../src/policy/gateway-errors.js';
import { liveKey } from '../edge/harness.js';
import { connectTls, deploy } from './deployment.js';
import type { Deployment } from './deployment.js';
import type { FrontKind } from './fixture.js';
import { sendFrames } from './http2-frames.js';
import type { Ending, Fields } from './http2-frames.js';

/** Values that RFC 9110 section 5.5 allows: each arrives without leading and trailing whitespace. */
const validValues = [
  ...[' v', 'v ', ' v ', '\tv', 'v\t', ' \t v\t ', 'v\tw', 'v  w', ' ', '\t'],
  ...['\xa0v\xe9\x85'], // obs-text, which a Unicode trim would remove
];
const invalidValues = ['v\rw', 'v\nw', 'v\r\nx-forged: yes', 'v\0w', 'v\0', '\nv', '\x01v', 'v\x0b', 'v\x7fw'];

interface Request {
  readonly method: string;
  readonly path: string;
  readonly fields: Fields;
  readonly body: string;
  /** The message of the gateway's own response; null if the gateway forwards the request. */
  readonly refusal: string | null;
}

type Kind = (value: string) => Request;

function kind(method: string, path: string, more: Partial<Request> & { readonly name?: string } = {}): Kind {
  const { fields = [['x-api-key', liveKey]], body = '', refusal = null, name = 'x-note' } = more;
  return (value) => ({ method, path, fields: [...fields, [name, value]], body, refusal });
}

const key = ['x-api-key', liveKey] as const;
const json = ['content-type', 'application/json'] as const;
const manyHeaders = Array.from({ length: 100 }, (_, index) => [`x-header-${index}`, `value ${index}`] as const);
const kinds: readonly Kind[] = [
  kind('GET', '/v1/transactions'),
  kind('GET', '/v1/transactions?limit=5&cursor=a%2Fb+c&odd=%zz&&x'),
  kind('GET', '/v1/transactions/Tx_1~a%20b:c@d,e'),
  kind('HEAD', '/v1/transactions'),
  kind('DELETE', '/v1/transactions/tx_1'),
  kind('PUT', '/v1/transactions/tx_1', { body: '{"note":"x"}' }),
  kind('PATCH', '/v1/transactions/tx_1', { body: '{"note":"y"}' }),
  kind('POST', '/v1/payouts', { fields: [key, json], body: '{"amount":1}', name: 'idempotency-key' }),
  kind('POST', '/v1/payouts', { fields: [key, json], body: `"${'x'.repeat(60_000)}"`, name: 'idempotency-key' }),
  kind('POST', '/v1/payouts', { fields: [key, ['idempotency-key', 'invoice-42']] }),
  kind('GET', '/v1/transactions', { fields: [key, ...manyHeaders] }),
  kind('GET', `/v1/transactions?${'q'.repeat(6000)}`, { fields: [key, ['x-long', 'v'.repeat(4000)]] }),
  kind('GET', '/v1/transactions', { fields: [], refusal: 'API Key is required' }),
  kind('GET', '/v1/transactions', {
    fields: [['x-api-key', 'svc_live_3Uz0cQ8mXo2Nobodys']],
    refusal: 'Invalid API Key',
  }),
  kind('GET', '/v1/nowhere', { refusal: 'Not found' }),
];

/** The body of every error response. */
const envelope = /^\{"success":false,"message":"([^"]+)","data":null\}$/;
const { malformed_request } = gatewayErrors;
const success = '{"success":true,"message":"OK","data":[]}';

/** Returns how a request ended for its client: reset, without a body, the message of an error, or any other body. */
function endingOf(ending: Ending): string {
  if (ending.kind === 'reset') return 'reset';
  if (ending.body === '') return 'no body';
  return envelope.exec(ending.body)?.[1] ?? ending.body;
}

type Seen = Deployment['upstream']['seen'];

/** The reason why the outcome of a request is wrong; null if it is right. */
function problemOf(request: Request, seen: Seen, ending: string): string | null {
  const [, value = ''] = request.fields.at(-2) ?? [];
  const expected = request.method === 'HEAD' ? 'no body' : success;
  if (!validValues.includes(value)) {
    const refused = ['reset', malformed_request.message].includes(ending) || ending === 'no body';
    return refused && seen.length === 0 ? null : `arrived ${seen.length} times, ${ending}`;
  }
  const right = seen.length === (request.refusal === null ? 1 : 0) && ending === (request.refusal ?? expected);
  if (!right) return `arrived ${seen.length} times, ${ending}`;
  return seen.map((one) => differenceOf(request, one)).find((difference) => difference !== null) ?? null;
}

/** The part of a request that arrived changed at the service; null if nothing differs. */
function differenceOf({ method, path, body, fields }: Request, one: Seen[number]): string | null {
  if (one.method !== method || one.url !== path.slice('/v1'.length)) return `${one.method} ${one.url}`;
  if (one.body.toString('latin1') !== body) return 'another body';
  if (one.headers['x-forged'] !== undefined) return 'a header was forged';
  for (const [name, value] of fields.filter(([field]) => field !== 'x-api-key')) {
    const got = one.rawHeaders.filter((_, index, all) => index % 2 === 1 && all[index - 1]?.toLowerCase() === name);
    const sent = fields.filter(([field]) => field === name).length;
    if (got.length !== sent || !got.includes(value.replaceAll(/^[ \t]+|[ \t]+$/g, ''))) return `${name} lost`;
  }
  return null;
}

/** Sends each value in all kinds of requests: each request arrives once with the value or is rejected. */
export function testHeaderValues(front: FrontKind): void {
  t.test(`${front.name}: 300 requests of all kinds with 20 header values`, { skip: front.missing }, async (t) => {
    const deployment = await deploy(t, front);
    const values = [...validValues, ...invalidValues];
    const problems: string[] = [];
    const endings = new Map(values.map((value) => [value, new Set<string>()]));
    let sent = 0;
    for (const make of kinds) {
      await Promise.all(
        values.map(async (value) => {
          const number = String((sent += 1));
          const made = make(value);
          const request = { ...made, fields: [...made.fields, ['x-number', number] as const] };
          const { method, path, fields, body } = request;
          const ending = endingOf(await sendFrames(connectTls(deployment.front, 'h2'), method, path, fields, body));
          endings.get(value)?.add(ending);
          const seen = deployment.upstream.seen.filter(({ headers }) => headers['x-number'] === number);
          const problem = problemOf(request, seen, ending);
          if (problem !== null) problems.push(`${method} ${path.slice(0, 40)} ${JSON.stringify(value)}: ${problem}`);
        }),
      );
    }
    t.equal(sent, 300);
    t.same(problems, []);
    for (const value of invalidValues) {
      t.comment(`${JSON.stringify(value)}: ${[...(endings.get(value) ?? [])].join(', ')}`);
    }
    t.same(deployment.gateway.internalErrors, []);
    t.notMatch(await deployment.front.written(), liveKey, 'the key is in no log of the front');
  });
}
