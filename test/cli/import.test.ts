import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import t, { type Test } from 'tap';
import { AdminClient } from '../../src/cli/admin/admin-client.js';
import { importLines } from '../../src/cli/admin/import/import-lines.js';
import { linesOf } from '../../src/cli/admin/import/lines.js';
import { run as runCommand } from '../../src/cli/run.js';
import { longestLineBytes } from '../../src/registry/imports/read-line.js';
import { registryFixture, token } from '../registry/registry-fixture.js';
import { killAtEnd, productCommand } from '../product-command.js';
import { forward, startServer } from '../start-server.js';

const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-cli-import-'));
t.teardown(() => rm(directory, { recursive: true, force: true }));
const tokenFile = path.join(directory, 'token');
await writeFile(tokenFile, token);

interface Result {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Starts a registry. `admin` of the result runs a command against it. */
async function startRegistry(t: Test) {
  const fixture = await registryFixture(t, 'sqlite::memory:');
  const url = await fixture.app.listen({ host: '127.0.0.1', port: 0 });
  const admin = async (args: readonly string[], { registry = url, isTerminal = false } = {}): Promise<Result> => {
    let [stdout, stderr] = ['', ''];
    const status = await runCommand([...args, '--registry', registry, '--token-file', tokenFile], {
      out: (text) => (stdout += text),
      err: (text) => (stderr += text),
      isTerminal,
    });
    t.notMatch(stderr, /\n {4}at /, 'no stack trace');
    return { status, stdout, stderr };
  };
  const stored = async (): Promise<number> =>
    (await fixture.database.selectFrom('api_keys').selectAll().execute()).length;
  return { ...fixture, url, admin, stored };
}

let files = 0;
async function fileOf(content: string | Buffer): Promise<string> {
  const file = path.join(directory, `file-${(files += 1)}.ndjson`);
  await writeFile(file, content);
  return file;
}

const merchant = (merchantId = 'm_a'): string =>
  JSON.stringify({
    ...{ type: 'merchant', merchantId, name: 'Ada', status: 'ACTIVE', goLive: true },
    ...{ ipAllowlist: null, originAllowlist: null },
  });
const key = (name: string | number, fields: object = {}): string =>
  JSON.stringify({
    ...{ lookupId: createHash('sha256').update(String(name)).digest('hex'), merchantId: 'm_a', environment: 'live' },
    ...{ status: 'ACTIVE', permissions: ['*'], ...fields },
  });
const keys = (count: number): string[] => Array.from({ length: count }, (_, number) => key(number));

t.test('input is split into lines independently of chunks, and an overlong line is not buffered', async (t) => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.string({ unit: fc.constantFrom('a', '\r', '\n', '\u00e9'), maxLength: 12 }), { maxLength: 8 }),
      fc.integer({ min: 1, max: 8 }),
      async (pieces, longest) => {
        const text = pieces.join('');
        const chunks = pieces.map((piece) => Buffer.from(piece));
        const found: (string | null)[] = [];
        let end = 0;
        for await (const line of linesOf(streamOf(chunks), longest)) {
          if (line.number !== found.length + 1) return false;
          found.push(line.bytes?.toString() ?? null);
          end = line.end;
        }
        const expected = text.split('\n');
        if (expected.at(-1) === '') expected.pop();
        const cut = expected.map((line) => (Buffer.byteLength(line) > longest ? null : line.replace(/\r$/, '')));
        return JSON.stringify(found) === JSON.stringify(cut) && end === Buffer.byteLength(text);
      },
    ),
  );
  t.pass();
});

t.test('a file is imported, reported as present when repeated, and exported unchanged', async (t) => {
  const { admin, call, stored } = await startRegistry(t);
  const file = await fileOf(`${merchant()}\r\n\n${keys(1200).join('\n')}\n  \n${key('last', { keyId: 'key_last' })}`);
  const dry = await admin(['keys', 'import', file, '--dry-run']);
  t.same(dry, {
    ...{ status: 0, stderr: '' },
    stdout: 'All lines are valid: 1 merchant and 1201 keys to import, 0 keys already present.\n',
  });
  t.equal(await stored(), 0);
  t.strictSame(await admin(['keys', 'import', file, '--actor', 'ada']), {
    ...{ status: 0, stderr: '', stdout: 'Imported 1 merchant and 1201 keys; 0 keys already present.\n' },
  });
  t.equal(await stored(), 1201);
  const events = (await call<{ claimed: string; after: { keys?: number } }[]>('GET', '/events')).body.data;
  t.same(
    events.map(({ claimed, after }) => [claimed, after.keys ?? 'merchant']),
    [
      ['ada', 202],
      ['ada', 500],
      ['ada', 499],
      ['ada', 'merchant'],
    ],
    'a few events account for every key',
  );
  t.match((await admin(['events', 'list'])).stdout, / keys\.imported +m_a +\S+ +202 keys\n/);

  const again = await admin(['keys', 'import', file, '--json']);
  t.same(JSON.parse(again.stdout), {
    ...{ dryRun: false, lines: 1204, bad: 0, problems: [], projected: true },
    ...{ created: { merchants: 0, keys: 0 }, present: { merchants: 1, keys: 1201 } },
  });

  const exported = await admin(['keys', 'export']);
  t.equal(exported.status, 0);
  t.equal(exported.stdout.split('\n').length, 1202 + 1);
  const other = await startRegistry(t);
  const copy = await other.admin(['keys', 'import', await fileOf(exported.stdout)]);
  t.equal(copy.stdout, 'Imported 1 merchant and 1201 keys; 0 keys already present.\n');
  t.equal(
    (await other.admin(['keys', 'export'])).stdout,
    exported.stdout,
    'exporting and importing reproduces the same file',
  );
  t.match((await admin(['keys', 'export', '--environment', 'test'])).stdout, /^\{"type":"merchant".*\n$/);
  t.equal((await admin(['keys', 'export', '--merchant', 'm_none'])).stdout, '');
  t.equal((await admin(['keys', 'export', '--environment', 'prod'])).status, 2);
});

t.test('one invalid line prevents the import; each invalid line is reported by number, without a key', async (t) => {
  const { admin, stored } = await startRegistry(t);
  const secret = 'svc_live_4Vz1cQ8mXo2hidden';
  const bad: [line: string | Buffer, message: RegExp][] = [
    ['{', /is not valid JSON/],
    [key(9).replace('{', '{"status":"REVOKED",'), /has two fields with the same name/],
    [Buffer.from([0x22, 0xff, 0x22]), /is not valid UTF-8/],
    ['[]', /must be a JSON object/],
    [key(10, { key: secret }), /contains what looks like an API key\. Give the hash of the key as lookupId/],
    [`${secret} is no JSON`, /contains what looks like an API key/],
    [
      key(10, { label: 'svc\\u005flive_4Vz1cQ8mXo2hidden' }).replace('\\\\u', '\\u'),
      /contains what looks like an API key/,
    ],
    [key(1), /lookupId is already in line 3/],
    [merchant(), /merchantId is already in line 1/],
    [
      key(11, { merchantId: 'm_none' }),
      /the registry has no merchant m_none\. Import it before its keys, or correct the id/,
    ],
    [key(12, { environment: 'prod', status: 'x' }), /environment must be live or test/],
    [' '.repeat(longestLineBytes + 1), /is longer than 786432 bytes/],
    ['', /^$/],
    [key(13, { expiresAt: 'soon' }), /expiresAt must be null, or a date/],
  ];
  const good = [merchant(), ...keys(3)];
  const lines = [...good, ...bad.map(([line]) => line)].flatMap((line) => [Buffer.from(line), Buffer.from('\n')]);
  const { status, stdout, stderr } = await admin(['keys', 'import', await fileOf(Buffer.concat(lines))]);
  t.equal(status, 1);
  t.equal(stdout.trim(), '');
  const reported = stderr.split('\n');
  for (const [index, [, message]] of bad.entries()) {
    const number = good.length + index + 1;
    const line = reported.find((one) => one.startsWith(`line ${number}: `))?.replace(/^line \d+: /, '') ?? '';
    t.match(line, message, `line ${number}`);
  }
  t.match(
    stderr,
    /\nNothing was imported: 13 of 18 lines are invalid\. Correct the file and run the same command again\.\n$/,
  );
  t.notMatch(stderr, 'hidden');
  t.equal(await stored(), 0);

  const json = await admin(['keys', 'import', await fileOf('x\n'.repeat(150)), '--json']);
  t.match(JSON.parse(json.stdout), { lines: 150, bad: 150, created: { keys: 0 }, problems: { length: 100 } });
  t.match(json.stderr, /\n… and 50 more invalid lines\nNothing was imported/);
  t.match(await admin(['keys', 'import', path.join(directory, 'none')]), {
    status: 1,
    stderr: /cannot be read: there is no such file\./,
  });
  t.match(await admin(['keys', 'import', directory]), { status: 2, stderr: /is a directory/ });
  // Not even root can open a socket as a file. The mode of a file would not stop root.
  const socket = path.join(directory, 'socket');
  const server = createServer().listen(socket);
  await once(server, 'listening');
  t.match(await admin(['keys', 'import', socket]), { status: 1, stderr: /^The file \S+ cannot be read: [A-Z]+\.\n$/ });
  server.close();
  t.match(await admin(['keys', 'import', await fileOf('')]), {
    status: 0,
    stdout: 'Imported 0 keys; 0 keys already present.\n',
  });
});

t.test('an interrupted import reports its progress, and continues when repeated', async (t) => {
  const { admin, stored, url } = await startRegistry(t);
  const file = await fileOf([merchant(), ...keys(1700)].join('\n'));
  let left = 2;
  const registry = await startServer(t, (request, response) => {
    if (request.url === '/imports' && (left -= 1) < 0) {
      request.socket.destroy();
      return;
    }
    forward(url, request, response);
  });
  const broken = await admin(['keys', 'import', file], { registry });
  t.equal(broken.status, 1);
  t.match(broken.stderr, /^Cannot reach the registry at .*: the connection failed/);
  t.match(
    broken.stderr,
    /\nStopped at line 1001\. Every line up to 1000 is imported\. To continue, run the same command again:/,
  );
  t.notMatch(broken.stderr, 'events list', 'the user is not told to check the events');
  t.equal(await stored(), 999);
  t.match(await admin(['keys', 'import', file]), {
    ...{ status: 0, stdout: 'Imported 701 keys; 1 merchant and 999 keys already present.\n' },
  });
  t.equal(await stored(), 1700);

  const client = new AdminClient({ address: new URL(url), token });
  const interruption = new AbortController();
  const interrupted = importLines({
    client,
    stream: streamOf([Buffer.from(keys(1100).join('\n'))]),
    onProgress: () => {
      interruption.abort();
    },
    signal: interruption.signal,
  });
  await t.rejects(interrupted, { message: /^Interrupted\.\nStopped at line 501\. Every line up to 500 is imported/ });
});

t.test('Ctrl-C ends an import after the batch in progress, with status 130', async (t) => {
  const { admin, stored, url } = await startRegistry(t);
  const file = await fileOf([merchant(), ...keys(2400)].join('\n'));
  let importing: ChildProcess | null = null;
  const registry = await startServer(t, (request, response) => {
    if (request.url === '/imports') {
      importing?.kill('SIGINT');
      importing = null; // a signal a second or more later would end the process at once
    }
    forward(url, request, response);
  });
  const args = ['keys', 'import', file, '--registry', registry, '--token-file', tokenFile];
  const child = spawn(...productCommand(args), { stdio: ['ignore', 'ignore', 'pipe'] });
  importing = child;
  killAtEnd(t, child);
  const printed = textOf(child.stderr);
  t.same(await once(child, 'close'), [130, null]);
  const form = /^Interrupted\.\nStopped at line \d+\. Every line up to (\d+) is imported/;
  const [, last = ''] = form.exec(await printed) ?? [];
  t.equal(await stored(), Number(last) - 1, 'the first line is the merchant');
  t.match(await admin(['keys', 'import', file]), { status: 0 });
  t.equal(await stored(), 2400);
});

t.test('an unprojected import is reported; the progress bar is drawn only on a terminal', async (t) => {
  const { admin, outwait, store } = await startRegistry(t);
  const drawn = await admin(['keys', 'import', await fileOf(merchant())], { isTerminal: true });
  t.match(drawn.stderr, /\r\u001b\[KChecking {2}\[=+ *\] +\d+ % 1 line\r\u001b\[K/);
  t.match(drawn.stderr, /Importing \[={30}\] 100 % 1 of 1 line\r\u001b\[K$/);
  store.fails = (call) => (call === 'write' ? 'before' : null);
  const kept = await outwait(admin(['keys', 'import', await fileOf(key(1))]), 0);
  t.match(kept, {
    ...{ status: 1, stdout: 'Imported 1 key; 0 keys already present.\n' },
    stderr: /^The keys are stored in the database, but not yet in the gateways' key store.*may have lost keys: repeat/,
  });
});

t.test('the process reads standard input, leaves no file, and ends when its output is closed', async (t) => {
  const { admin, url } = await startRegistry(t);
  const temporary = await mkdtemp(path.join(directory, 'tmp-'));
  const env = { ...process.env, MERCHANT_GATEWAY_REGISTRY: url, MERCHANT_GATEWAY_TOKEN: token, TMPDIR: temporary };
  const importing = spawn(...productCommand(['keys', 'import', '-']), { env });
  importing.stdin.end([merchant(), ...keys(600)].join('\n'));
  const output = await textOf(importing.stdout);
  t.equal(output, 'Imported 1 merchant and 600 keys; 0 keys already present.\n');
  t.same(await readdir(temporary), []);

  const exporting = spawn(...productCommand(['keys', 'export']), { env });
  exporting.stdout.once('data', () => exporting.stdout.destroy());
  const errors = textOf(exporting.stderr);
  await once(exporting, 'close');
  t.equal(await errors, '', 'no stack trace when the reader closes the pipe');
  t.match((await admin(['keys', 'import', '--help'])).stdout, /keys import \[options\] <file>[^]*--dry-run/);
});

async function* streamOf(chunks: readonly Buffer[]): AsyncGenerator<Buffer> {
  for (const chunk of chunks) yield await Promise.resolve(chunk);
}

async function textOf(stream: NodeJS.ReadableStream): Promise<string> {
  let text = '';
  for await (const chunk of stream) text += String(chunk);
  return text;
}
