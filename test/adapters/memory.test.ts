import { truncate, writeFile } from 'node:fs/promises';
import path from 'node:path';
import t from 'tap';
import { MemoryRecords } from '../../src/adapters/memory/memory-records.js';
import { RecordKeyStore } from '../../src/gateway/record-key-store.js';
import { readRecordsFile } from '../../src/adapters/memory/records-file.js';
import { OperatorError } from '../../src/config/operator-error.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import type { RecordsStore } from '../../src/gateway/store-ports.js';
import { keyStoreContract, seededKey, seededRecords } from './key-store-contract.js';

t.test('the memory key store satisfies the key store contract', (t) => {
  keyStoreContract(t, (records) => {
    const store = new RecordKeyStore(new MemoryRecords(records));
    return Promise.resolve({ store, close: () => store.close() });
  });
  t.end();
});

const seededId = lookupIdOf(seededKey, null);

t.test(
  'each record that is invalid is reported once, at the start, with its store key and what is wrong',
  async (t) => {
    const records = {
      ...seededRecords,
      [`mg:key:${'1'.repeat(64)}`]: { keyId: 'k' },
      [`mg:key:${'2'.repeat(64)}`]: { ...(seededRecords[`mg:key:${seededId}`] as object), merchantId: 'm_nobody' },
    };
    const reported: [string, string][] = [];
    const store = new RecordKeyStore(
      new MemoryRecords(records, (storeKey, problem) => reported.push([storeKey, problem])),
    );
    t.same(
      reported.map(([storeKey]) => storeKey),
      [`mg:key:${'1'.repeat(64)}`, `mg:key:${'2'.repeat(64)}`],
    );
    t.ok(reported.every(([, problem]) => problem !== ''));
    t.match(reported[1]?.[1], /mg:merchant:m_nobody/);
    await t.rejects(async () => store.find('1'.repeat(64)));
    t.equal(reported.length, 2, 'it is not reported again on a read');
  },
);

t.test('later changes of the given records do not affect the store', async (t) => {
  const records: Record<string, unknown> = { ...seededRecords };
  const store = new RecordKeyStore(new MemoryRecords(records));
  for (const name of Object.keys(records)) Reflect.deleteProperty(records, name);
  t.match((await store.find(seededId)).credential, { keyId: 'key_1' });
  t.equal(store.unavailableReason(), null);
});

t.test('a records file is read as written', async (t) => {
  const file = path.join(t.testdir(), 'records.json');
  const records = { ...seededRecords, 'mg:note': 'Bücher & Söhne – 本' };
  await writeFile(file, JSON.stringify(records, null, 2));
  t.strictSame(await readRecordsFile(file), records);
  const store = new RecordKeyStore(new MemoryRecords(await readRecordsFile(file)));
  t.match((await store.find(seededId)).credential, { keyId: 'key_1' });
});

t.test('a records file with a duplicate member is rejected: the last one would silently win', async (t) => {
  const file = path.join(t.testdir(), 'records.json');
  for (const [text, column] of [
    ['{"mg:key:a":{},"mg:key:a":{}}', 16],
    ['{"mg:key:a":{"status":"REVOKED","status":"ACTIVE"}}', 33],
    ['{"mg:key:a":{"status":"REVOKED","st\\u0061tus":"ACTIVE"}}', 33],
  ] as const) {
    await writeFile(file, text);
    const place = `line 1, column ${column}`;
    t.equal(
      await problemOf(file),
      `The records file ${file} has a duplicate member name at ${place}. Remove one of the two members.`,
    );
  }
});

t.test('a JSON error in a records file is reported with its position and the remedy', async (t) => {
  const file = path.join(t.testdir(), 'records.json');
  const rows: readonly [string, string][] = [
    ['', 'ends at line 1, column 1, before the JSON is complete. It may be truncated: write it again.'],
    [
      '{\n  "mg:meta": {\n',
      'ends at line 3, column 1, before the JSON is complete. It may be truncated: write it again.',
    ],
    [
      '{\n  "mg:meta": {}\n  "mg:key:a": {}\n}',
      'is not valid JSON at line 3, column 3. A comma, quote or bracket may be missing there, or there may be one too many.',
    ],
    [
      '{"mg:meta": {"a": "never ends}}\n',
      'is not valid JSON at line 1, column 19. A comma, quote or bracket may be missing there, or there may be one too many.',
    ],
    [
      '{"__proto__": 1}',
      'has a member named __proto__ at line 1, column 2. Remove this member: no record has that name.',
    ],
    [
      `{"mg:meta":\r\n ${'['.repeat(32)}`,
      'is nested more than 32 levels deep at line 2, column 33. Remove the deepest levels: no valid record needs them.',
    ],
    [
      '{"mg:meta": {\n"revision": 1.00000000000000000001}}',
      'has a number with too many digits at line 2, column 13. It cannot be stored exactly: write it as an integer.',
    ],
  ];
  for (const [text, sentence] of rows) {
    await writeFile(file, text);
    t.equal(await problemOf(file), `The records file ${file} ${sentence}`);
  }
});

async function problemOf(file: string): Promise<string> {
  try {
    await readRecordsFile(file);
    return 'none';
  } catch (error) {
    return error instanceof OperatorError ? error.message : `not for an operator: ${String(error)}`;
  }
}

t.test('an unusable records file is reported in one sentence that names the file', async (t) => {
  const directory = t.testdir({
    'empty.json': '',
    'cut.json': '{"mg:meta": {"version": 1}',
    'list.json': '[]',
    'text.json': '"mg:meta"',
    'null.json': 'null',
    'number.json': '1',
    'large.json': '{}',
    'shape.json': '{"mg:meta":{},"keys":[],"merchants":[]}',
  });
  const at = (name: string): string => path.join(directory, name);
  await truncate(at('large.json'), 256 * 1024 * 1024 + 1);
  const rows: [string, RegExp][] = [
    [at('nowhere.json'), /^The records file .*nowhere\.json cannot be read: there is no such file\.$/],
    [at('cut.json/records.json'), /^The records file .* cannot be read: a part of its path is not a directory\.$/],
    [directory, /^The records file .* cannot be read: it is a directory\.$/],
    [at('empty.json'), /^The records file .*empty\.json ends at line 1, column 1, /],
    [at('cut.json'), /^The records file .*cut\.json ends at line 1, column 27, /],
    ...['list', 'text', 'null', 'number'].map((name): [string, RegExp] => [
      at(`${name}.json`),
      /^The records file .*\.json must be one JSON object\. The name of each member is the name of a record, and its value is the record\.$/,
    ]),
    [at('shape.json'), /^The records file .*shape\.json has a member with an unknown name\. Expected mg:meta, /],
    [at('large.json'), /^The records file .*large\.json is larger than 268435456 bytes\.$/],
  ];
  for (const [file, sentence] of rows) t.match(await problemOf(file), sentence, file.replace(directory, ''));
});

t.test('a problem with a records file never quotes its content, which may be a key', async (t) => {
  const key = 'svc_live_Memory0001';
  const twice = `{"${key}":1,"${key}":2}`;
  const texts = [twice, key, `{"${key}"}`, `{"mg:key:${key}": }`, `{"a": "${key}`, `["${key}"]`, `"${key}"`];
  const directory = t.testdir();
  for (const [index, text] of texts.entries()) {
    const file = path.join(directory, `${index}.json`);
    await writeFile(file, text);
    const problem = await problemOf(file);
    t.match(problem, /^The records file .* (?:is not|has a|must be one) /, text);
    t.notMatch(problem, /svc_|Memory0001|mg:/);
  }
});

t.test('a record whose name is not a possible key hash is reported', (t) => {
  const reported: string[] = [];
  const upperCase = `mg:key:${seededId.toUpperCase()}`;
  const records = { ...seededRecords, [upperCase]: seededRecords[`mg:key:${seededId}`] };
  new MemoryRecords(records, (storeKey) => reported.push(storeKey));
  t.same(reported, [upperCase]);
  t.end();
});

const meta = { version: 1, generation: 'g', projectedAt: '2026-01-01T00:00:00.000Z' } as const;

t.test('a registry in the same process writes the records that its gateway reads', async (t) => {
  const started = { host: 'h', version: '1.2.3', startedAt: '2026-01-01T00:00:00.000Z' };
  const records = new MemoryRecords({}, undefined, { instanceId: 'here', environment: 'test', ...started });
  const registry: RecordsStore = records;
  const own = { endsWithProcess: true, canFailOver: false };
  t.match(records, own, 'no gateway can be missing, and no other server can take over');
  const snapshot = await registry.snapshot();
  const { servers } = snapshot;
  t.same(snapshot, {
    ...{ epoch: 0, servers, replicas: 0, isWhole: true, meta: null, seal: 'none', revision: 0, change: null },
  });
  t.equal(servers.length, 1, 'one server id: a registry waits for a server without one');
  t.match(await registry.gateways([]), { generation: null, isFresh: true, gateways: [{ instanceId: 'here' }] });

  await registry.begin();
  const entries = Object.entries(seededRecords).filter(([name]) => /^mg:(key|merchant):/.test(name));
  const written = entries.map(([name, value]) => ({ name: name.slice('mg:'.length), value: value as object }));
  t.equal(await registry.rewrite(written, 4, 'g'), 0, 'no record of a later change remains');
  t.match(records.unavailableReason(), /has no mg:meta record/, 'the store is incomplete');
  await registry.complete({ ...meta, servers: [...servers] }, { revision: 4, change: 'fourth' });
  t.equal(records.unavailableReason(), null);
  t.match(records.key(seededId), { record: { keyId: 'key_1' }, source: 'store', ageMilliseconds: 0 });
  t.match(await registry.snapshot(), { epoch: 0, meta: { ...meta, servers }, revision: 4, change: 'fourth' });
  const { gateways, generation } = await registry.gateways(['another']);
  t.equal(generation, 'g');
  t.match(gateways, [
    { instanceId: 'here', silentMilliseconds: 0, acknowledgement: { generation: 'g', revision: 4, ...started } },
  ]);
  t.equal(gateways.length, 1);

  const names: string[] = [];
  for await (const name of registry.names('key:')) names.push(name);
  t.same(
    names.toSorted(),
    written
      .map(({ name }) => name)
      .filter((name) => name.startsWith('key:'))
      .toSorted(),
  );
  t.equal(await registry.write([{ name: `key:${seededId}`, value: null }], 5, 'g'), 0);
  t.match(records.key(seededId), { record: null }, 'the gateway reads the record once it is written');
  await registry.publish({ revision: 5, change: 'fifth' });
  t.match(await registry.snapshot(), { meta, revision: 5, change: 'fifth' });
  t.match((await registry.gateways([])).gateways, [{ acknowledgement: { environment: 'test', revision: 5 } }]);
  await registry.grant([{ instanceId: 'here', generation: 'g', beat: 1, lifetimeMilliseconds: 1 }]);
  await registry.removeGateways(['here']);
  t.equal((await registry.gateways([])).gateways.length, 1, 'the gateway is listed as long as its process runs');
  t.same(await registry.read(['merchant:m_1']), [], 'a new process has only the records of its database');
});

t.test('records in memory without a gateway list no gateway', async (t) => {
  const registry: RecordsStore = new MemoryRecords({});
  await registry.complete(meta, { revision: 1, change: 'c' });
  t.same(await registry.gateways(['gone']), {
    epoch: 0,
    generation: 'g',
    isSealed: false,
    isFresh: true,
    hasReports: false,
    gateways: [],
  });
});
