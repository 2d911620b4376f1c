import { createHash, createHmac } from 'node:crypto';
import {
  appendFileSync,
  existsSync,
  readFileSync,
  renameSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { keyFingerprint } from '../../src/telemetry/key-fingerprint.js';
import { logSecretOf } from '../../src/telemetry/chain.js';
import { readLogEnd } from '../../src/telemetry/log-file.js';
import { openLog, testSecret, until } from './open-log.js';

interface Line {
  readonly service: { readonly ephemeral_id: string };
  readonly gateway: {
    readonly environment: string;
    readonly chain: { readonly previous: string; readonly lost: number; readonly predecessor?: object | null };
  };
  readonly event: Readonly<Record<string, unknown>>;
}

function linesOf(file: string): Line[] {
  const text = readFileSync(file, 'utf8');
  if (!text.endsWith('\n')) throw new Error('the last line has no newline');
  return text
    .slice(0, -1)
    .split('\n')
    .map((line) => JSON.parse(line) as Line);
}

t.test('the chain in the document can be verified with the document alone', (t) => {
  const document = readFileSync('docs/audit-log.md', 'utf8');
  const secret = /secret `([^`]+)`/.exec(document)?.[1] ?? '';
  const [, block = ''] = /```json\n([^`]+)```/.exec(document) ?? [];
  const lines = block.trimEnd().split('\n');
  t.equal(lines.length, 3);
  let previous = '0'.repeat(64);
  for (const line of lines) {
    previous = createHmac('sha256', secret).update(previous).update(line.slice(0, -76)).digest('hex');
    t.equal((JSON.parse(line) as Line).event.hash, previous);
  }
  const [, key = '', fingerprint = ''] = /key `(svc_live_\w+)`[^`]+`([0-9a-f]{32})`/.exec(document) ?? [];
  t.equal(createHmac('sha256', secret).update(key).digest('hex').slice(0, 32), fingerprint);
  t.equal(keyFingerprint(logSecretOf(Buffer.from(secret)), key), fingerprint);
  t.equal(
    keyFingerprint(null, key),
    null,
    'no fingerprint without a secret: key stores are searched by the plain hash',
  );
  t.end();
});

t.test('a sealed line reads back as written, and cannot be read as two lines', async (t) => {
  const file = path.join(t.testdir(), 'var', 'log', 'access.log');
  const log = openLog(file);
  log.write(JSON.stringify({ url: { path: 'one\ntwo\u2028' }, event: { code: '","sequence":7,"hash":"' } }));
  await log.close(30_000);
  const [start, line, end, ...more] = linesOf(file);
  t.match(start, {
    event: { action: 'checkpoint', reason: 'start', sequence: 1 },
    gateway: { chain: { predecessor: null } },
  });
  const { dataset, kind, category, type } = start?.event ?? {};
  t.strictSame(
    { dataset, kind, category, type, environment: start?.gateway.environment },
    { dataset: 'gateway.access', kind: 'state', category: ['process'], type: ['info'], environment: 'live' },
    'like any line of an access log',
  );
  t.match(line, { url: { path: 'one\ntwo\u2028' }, event: { code: '","sequence":7,"hash":"', sequence: 2 } });
  t.match(end, { event: { action: 'checkpoint', reason: 'end', sequence: 3 }, gateway: { chain: { lost: 0 } } });
  t.same(more, []);
});

t.test('without a secret the chain uses plain hashes, and records that', async (t) => {
  const file = path.join(t.testdir(), 'access.log');
  await openLog(file, { secret: null }).close(30_000);
  const [first = ''] = readFileSync(file, 'utf8').split('\n');
  const hash = createHash('sha256')
    .update('0'.repeat(64) + first.slice(0, -76))
    .digest('hex');
  t.match(JSON.parse(first), { gateway: { chain: { algorithm: /^sha256$/ } }, event: { hash } });
});

t.test('a new process records the line that it continues after, complete or torn', async (t) => {
  const file = path.join(t.testdir(), 'access.log');
  const first = openLog(file);
  await first.close(30_000);
  const before = linesOf(file).at(-1);
  await openLog(file).close(30_000);
  const id = before?.service.ephemeral_id;
  const named = (): unknown =>
    linesOf(file).findLast(({ event }) => event.reason === 'start')?.gateway.chain.predecessor;
  t.same(named(), { id, sequence: 2, hash: before?.event.hash, torn: 0 });

  const last = linesOf(file).at(-1);
  appendFileSync(file, '{"service":{"ep');
  await openLog(file).close(30_000);
  const lines = readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => line.startsWith('{"service":{"ephemeral_id'));
  const torn = (JSON.parse(lines.at(-2) ?? '') as Line).gateway.chain.predecessor;
  t.same(torn, { id: last?.service.ephemeral_id, sequence: 2, hash: last?.event.hash, torn: 15 });

  const length = readFileSync(file).length;
  truncateSync(file, length - 1);
  await openLog(file).close(30_000);
  const whole = readFileSync(file, 'utf8').split('\n');
  t.match(JSON.parse(whole.at(-3) ?? ''), { gateway: { chain: { predecessor: { sequence: 2, torn: 0 } } } });
  t.equal(whole.filter((line) => line === '').length, 1, 'a complete line only got its missing newline');

  writeFileSync(file, 'what is this\n');
  await openLog(file).close(30_000);
  const afterForeign = JSON.parse(readFileSync(file, 'utf8').split('\n')[1] ?? '') as Line;
  t.same(afterForeign.gateway.chain.predecessor, { id: null, sequence: null, hash: null, torn: 0 });

  writeFileSync(file, '{"ser');
  t.match(readLogEnd(file), { predecessor: { id: null, torn: 5 }, isOpen: true }, 'an incomplete first line');

  const sealed = `{"service":{"ephemeral_id":"${id ?? ''}"},"event":{"id":"a","sequence":1234,"hash":"${'0'.repeat(64)}"}}`;
  for (const [line, sequence] of [
    [sealed, 1234],
    [`{${sealed}`, null],
    [`${sealed}}`, null],
    [sealed.replace(':1234', ':0'), null],
    [sealed.replace(':1234', ':01'), null],
    ...['I', 'L', 'O', 'U'].map((digit) => [sealed.replace(/\w(?="\},)/, digit), null] as const),
  ] as const) {
    writeFileSync(file, `${line}\n`);
    await openLog(file).close(30_000);
    const next = JSON.parse(readFileSync(file, 'utf8').split('\n')[1] ?? '') as Line;
    t.match(next.gateway.chain.predecessor, { sequence }, line);
  }
});

t.test('an unreadable file is not treated as empty, because an attacker could then insert lines', (t) => {
  const file = path.join(t.testdir(), 'access.log');
  t.strictSame(readLogEnd(file), { predecessor: null, isOpen: false }, 'a missing file counts as empty');
  symlinkSync(file, file);
  t.throws(() => readLogEnd(file), { code: 'ELOOP' });
  t.end();
});

t.test('rotation preserves the chain: each file records its end, and the next file what it continues', async (t) => {
  const directory = t.testdir();
  const file = path.join(directory, 'access.log');
  let [failures, opened] = [0, 0];
  const log = openLog(file, {
    renameMilliseconds: 5,
    onReopenFailure: () => (failures += 1),
    onReopened: () => (opened += 1),
  });
  log.write(JSON.stringify({ event: { code: 'one' } }));
  await until(() => readFileSync(file, 'utf8').includes('"one"'));
  log.reopen();
  renameSync(file, `${file}.1`);
  log.write(JSON.stringify({ event: { code: 'two' } }));
  await until(() => existsSync(file) && readFileSync(file, 'utf8').includes('file-start'));
  log.write(JSON.stringify({ event: { code: 'three' } }));
  renameSync(file, `${file}.2`);
  log.reopen();
  await until(() => existsSync(file) && readFileSync(file, 'utf8').includes('file-start'));
  renameSync(directory, `${directory}-gone`);
  await until(() => failures > 0);
  log.write(JSON.stringify({ event: { code: 'four' } }));
  renameSync(`${directory}-gone`, directory);
  await log.close(30_000);
  t.equal(opened, 2);
  t.equal(failures, 1, 'a failure to open the new file is reported once, and lines still go into the open file');
  const events = [`${file}.1`, `${file}.2`, file].flatMap((one) => linesOf(one).map(({ event }) => event));
  t.same(
    events.map(({ reason, code }) => reason ?? code),
    ['start', 'one', 'two', 'file-end', 'file-start', 'three', 'file-end', 'file-start', 'four', 'end'],
  );
  t.same(
    events.map(({ sequence }) => sequence),
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
  );
  const [first] = linesOf(file);
  t.equal(first?.gateway.chain.previous, events[6]?.hash, 'a file can be verified alone');
});

t.test('a checkpoint is written periodically, and reports the number of lost lines', async (t) => {
  const file = path.join(t.testdir(), 'access.log');
  const log = openLog(file, { checkpointMilliseconds: 5 });
  await until(() => readFileSync(file, 'utf8').includes('"interval"'));
  for (let count = 0; count < 20; count += 1) log.write(JSON.stringify({ event: { filler: 'x'.repeat(1_000_000) } }));
  const lost = log.lost();
  t.ok(lost > 0 && log.heldBytes() > 0);
  t.match(log.problem(), /^the destination is too slow: \d+ bytes wait to be written; lines lost: [1-9]/);
  await log.close(30_000);
  const { gateway, event } = linesOf(file).at(-1) ?? {};
  t.match({ gateway, event }, { gateway: { chain: { lost } }, event: { reason: 'end' } });
  t.equal(log.heldBytes(), 0);
});

t.equal(testSecret.type, 'secret');
