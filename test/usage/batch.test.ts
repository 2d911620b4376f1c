import { deflateRawSync, inflateRawSync } from 'node:zlib';
import t from 'tap';
import type { UsageBatch } from '../../src/usage/batch.js';
import { parseBatch } from '../../src/usage/batch-text.js';
import { batchText } from './batch-text.js';

const hour = Date.UTC(2026, 10, 20, 10);

const batch: UsageBatch = {
  version: 1,
  process: '01M7WJMG35EDK4R664YCSW956W',
  instance: 'gateway-1:17',
  environment: 'live',
  ...{ sequence: 3, acknowledged: 1 },
  from: hour,
  to: hour + 1_000,
  isLast: false,
  dropped: { refusals: 2 },
  keys: [
    {
      ...{ keyId: 'key-1', merchantId: 'merchant-1', lookupId: null },
      codes: [
        {
          ...{ hour, code: 'accepted', count: 5, totalMilliseconds: 12.5, slowestMilliseconds: 4 },
          ...{ requestBytes: 10, responseBytes: 500 },
        },
      ],
      lastUse: { at: hour + 900, address: '192.0.2.1', country: 'DE' },
      addresses: [
        {
          ...{ day: hour - 10 * 3_600_000, address: null, country: null, asNumber: null },
          ...{ accepted: 5, refused: 1, firstAt: hour, lastAt: hour + 900 },
        },
      ],
      agents: [{ day: hour - 10 * 3_600_000, agent: 'curl/8 "é"', count: 5 }],
    },
  ],
  merchants: [
    {
      merchantId: 'merchant-1',
      hosts: [{ day: hour - 10 * 3_600_000, header: 'origin', host: 'shop.example', accepted: 5, refused: 0 }],
      refusals: [
        {
          ...{ at: hour + 1, code: 'ip_not_allowed', status: 401, method: 'GET', path: '/v1/payouts' },
          ...{ address: '192.0.2.2', keyId: 'key-1', header: null, requestId: 'r-1' },
        },
      ],
    },
  ],
  unknown: { codes: [], addresses: [] },
};

/** The text that a gateway sends for a batch, with a change to its JSON. */
async function wireText(change: (wire: Record<string, unknown>) => object): Promise<string> {
  const inflated = inflateRawSync(Buffer.from(await batchText(batch), 'base64')).toString();
  return textOf(change(JSON.parse(inflated) as Record<string, unknown>));
}

function textOf(value: unknown): string {
  return deflateRawSync(JSON.stringify(value)).toString('base64');
}

t.test('a newer gateway may add members', async (t) => {
  t.ok(await parseBatch(await wireText((wire) => ({ ...wire, later: 1 }))));
});

t.test('the batch of a gateway without requests has no rows', async (t) => {
  const empty = { ...batch, keys: [], merchants: [], unknown: { codes: [], addresses: [] } };
  t.same(await parseBatch(await batchText(empty)), empty);
});

const [key] = batch.keys;
const invalid: Readonly<Record<string, (wire: Record<string, unknown>) => unknown>> = {
  'a number in place of an object': () => 1,
  'an unknown version': (wire) => ({ ...wire, version: 2 }),
  'a sequence of 0': (wire) => ({ ...wire, sequence: 0 }),
  'a count that is not an integer': (wire) => ({ ...wire, dropped: { refusals: 0.5 } }),
  'an unknown environment': (wire) => ({ ...wire, environment: 'prod' }),
  'a process id with a line end': (wire) => ({ ...wire, process: 'a\nb' }),
  'too many rows': (wire) => ({ ...wire, keys: Array.from({ length: 10_001 }, () => (wire.keys as unknown[])[0]) }),
  'more than 8 MiB when inflated': (wire) => ({ ...wire, later: 'x'.repeat(8 * 1024 * 1024) }),
  'no table of texts': (wire) => ({ ...wire, texts: undefined }),
  'a text that is not in the table': (wire) => ({ ...wire, texts: [] }),
  'a text that is a number': (wire) => ({ ...wire, texts: (wire.texts as string[]).map(() => 1) }),
  'rows of another width': (wire) => ({ ...wire, unknown: [[1, 0, 1], [], [], []] }),
  'text in place of rows': (wire) => ({ ...wire, unknown: ['1234567', [], [], []] }),
  'a negative count': (wire) => ({ ...wire, unknown: [[0, 0, -1, 0, 0, 0, 0], [], [], []] }),
  'keys that are no list': (wire) => ({ ...wire, keys: { length: 1, 0: key } }),
};

for (const [what, change] of Object.entries(invalid)) {
  t.test(`a batch of usage is refused: ${what}`, async (t) => {
    t.equal(await parseBatch(await wireText((wire) => change(wire) as object)), null);
  });
}

t.test('text that is not deflated is refused', async (t) => {
  t.equal(await parseBatch(''), null);
  t.equal(await parseBatch(Buffer.from(JSON.stringify(batch)).toString('base64')), null);
});
