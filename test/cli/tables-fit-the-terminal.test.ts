import { spawn } from 'node:child_process';
import { once } from 'node:events';
import t, { type Test } from 'tap';
import { recordLines, tableLines, terminalWidth, widthOf } from '../../src/cli/admin/table.js';
import { productCommand } from '../product-command.js';
import { registryFixture, token } from '../registry/registry-fixture.js';
import { openLog } from '../telemetry/open-log.js';

/** The lines that a command prints on a terminal with the given number of columns. */
async function onTerminal(columns: number, args: readonly string[], env: Record<string, string>): Promise<string[]> {
  const [command, words] = productCommand(args);
  const quoted = [command, ...words].map((word) => `'${word}'`).join(' ');
  const child = spawn('script', ['-qec', `stty cols ${columns}; exec ${quoted}`, '/dev/null'], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ...env },
  });
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  await once(child, 'close');
  return output.trimEnd().split('\r\n');
}

function tooLong(lines: readonly string[], columns: number): string[] {
  return lines.filter((line) => widthOf(line) > columns);
}

const heading = ['ID', 'NAME', 'WHY', 'AT'];
const id = `m_${'0'.repeat(26)}`;
const why = 'somebody knew changes that the database lacks';
const rows = [
  [id, 'Ada Stores of the long name', why, '2026-01-15T12:00:00.000Z'],
  [id, 'Bob', '', ''],
];

t.test('a table wider than the terminal is cut or wrapped in permitted columns, and ids stay whole', (t) => {
  const options = { cut: ['NAME'], wrap: ['WHY'] };
  const whole = tableLines(heading, rows, { ...options, width: Infinity });
  t.same(whole, tableLines(heading, rows, options), 'without a terminal nothing is cut');
  t.match(whole[1], new RegExp(`^${id}  Ada Stores of the long name  ${why}  2026-01-15T12:00:00.000Z$`));
  t.same(tooLong(whole, 130), []);

  t.same(tableLines(heading, rows, { ...options, width: 95 }), [
    'ID                            NAME                WHY                  AT',
    `${id}  Ada Stores of the…  somebody knew        2026-01-15T12:00:00.000Z`,
    '                                                  changes that the',
    '                                                  database lacks',
    `${id}  Bob`,
  ]);
  t.same(tableLines(heading, rows, { ...options, width: 60 }), [
    `ID    ${id}`,
    'NAME  Ada Stores of the long name',
    `WHY   ${why}`,
    'AT    2026-01-15T12:00:00.000Z',
    '',
    `ID    ${id}`,
    'NAME  Bob',
  ]);
  for (let width = 34; width < 140; width += 1) {
    const lines = tableLines(heading, rows, { ...options, width });
    t.equal(lines.join('\n').split(id).length - 1, 2, `${width}: both ids are whole`);
    if (width >= 52) t.same(tooLong(lines, width), [], `${width}: no line is too long`);
    const rigid = tableLines(heading, rows, { width }).join('\n').replaceAll(/\s+/g, '');
    t.ok(
      rigid.includes(why.replaceAll(' ', '')) && !rigid.includes('…'),
      `${width}: without permission nothing is cut`,
    );
  }
  t.end();
});

t.test('characters of double or zero width are measured correctly', (t) => {
  const names: [text: string, width: number][] = [
    ['商店', 4],
    ['e\u0301', 1],
    ['\u{1f600}', 2],
    ['\u2764\ufe0f', 2],
    ['\u{1f469}\u200d\u{1f4bb}', 2],
    ['Löwe', 4],
    ['한국', 4],
  ];
  for (const [text, width] of names) t.equal(widthOf(text), width, text);
  const lines = tableLines(
    ['NAME', 'STATUS'],
    names.map(([name]) => [name, 'ACTIVE']),
  );
  t.same(
    lines.slice(1).map((line) => widthOf(line)),
    names.map(() => 12),
    'columns are aligned',
  );
  const [, cut = ''] = tableLines(['NAME', 'ID'], [['商店商店商店商店', 'm_1']], { cut: ['NAME'], width: 14 });
  t.equal(cut, '商店商店…  m_1');
  t.same(recordLines([['名前', 'x'], ['id', 'y']]), ['名前  x', 'id    y']); // prettier-ignore
  t.end();
});

t.test('only a terminal has a width', (t) => {
  t.equal(terminalWidth({ isTTY: true, columns: 80 }), 80);
  t.equal(terminalWidth({ isTTY: true, columns: 0 }), Infinity, 'a terminal of unknown width');
  t.equal(terminalWidth({ isTTY: true }), Infinity);
  t.equal(terminalWidth({ columns: 80 }), Infinity);
  t.end();
});

/**
 * Starts a registry with a merchant and two keys whose rows are wide. Returns the merchant, the ids of the keys, and
 * the environment variables with which commands use this registry.
 */
async function wideRows(t: Test) {
  const { app, createKey, createMerchant } = await registryFixture(t, 'sqlite::memory:');
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  const merchant = await createMerchant({ name: `Ada ${'and daughters '.repeat(6)}`.trim() });
  const label = 'the till by the window, '.repeat(4).trim().slice(0, 100);
  const keys = [
    await createKey(merchant.id, { label, expiresIn: '90d', permissions: ['payouts:write', 'wallets:*'] }),
    await createKey(merchant.id),
  ];
  const env = { MERCHANT_GATEWAY_REGISTRY: url, MERCHANT_GATEWAY_TOKEN: token };
  return { merchant, keyIds: keys.map(({ keyId }) => keyId), env };
}

t.test('on a terminal no list row exceeds the width, and ids can be copied whole', async (t) => {
  const { merchant, keyIds, env } = await wideRows(t);
  const lists: [args: string[], ids: readonly string[]][] = [
    [['merchants', 'list'], [merchant.id]],
    [['keys', 'list', '--merchant', merchant.id], keyIds],
    [
      ['events', 'list'],
      [merchant.id, ...keyIds],
    ],
  ];
  for (const columns of [80, 132]) {
    for (const [args, ids] of lists) {
      const lines = await onTerminal(columns, args, env);
      t.ok(lines.length > 2, args.join(' '));
      for (const one of ids) t.ok(lines.join('\n').includes(one), `${columns} ${args.join(' ')}: ${one}`);
      const broken = tooLong(lines, columns).filter((line) => !line.startsWith('LABEL  '));
      t.same(broken, [], `${columns} ${args.join(' ')}`);
    }
  }
  const [head, row] = await onTerminal(80, ['merchants', 'list'], env);
  t.match(head, /^ID +NAME +STATUS +LIVE +IPS +ORIGINS$/, 'printed as a table');
  t.match(row, new RegExp(`^${merchant.id}  Ada and .*…  ACTIVE  no    any  any$`));
});

t.test('on a terminal a log line wraps only between its cells', async (t) => {
  const directory = t.testdir();
  const log = openLog(`${directory}/access.log`);
  const at = '2026-11-20T10:00:00.000Z';
  const [key, request] = [`key_${'1'.repeat(26)}`, '9b2c7a0e-3b0f-4a53-9b50-1e0d4a8f7c11'];
  log.write(
    JSON.stringify({
      '@timestamp': at,
      http: { request: { id: request, method: 'GET' }, response: { status_code: 200 } },
      url: { path: '/v1/payouts' },
      client: { ip: '192.0.2.1' },
      source: { ip: '192.0.2.1' },
      organization: { id },
      gateway: { key: { id: key } },
      event: { action: 'api-request', code: 'accepted', duration: 1000 },
    }),
  );
  await log.close(30_000);
  const args = ['audit', 'search', `${directory}/access.log`];
  const lines = await onTerminal(80, args, {});
  t.same(tooLong(lines, 80), []);
  t.equal(lines.length, 3);
  for (const cell of [at, id, key, request, 'GET /v1/payouts']) t.match(lines.join('\n'), cell);
  t.equal((await onTerminal(300, args, {})).length, 1, 'a wide terminal shows it in one line');
});
