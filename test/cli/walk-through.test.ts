import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { killAtEnd, productCommand } from '../product-command.js';

const hasCurl = spawnSync('curl', ['--version']).status === 0;

/** The shell commands of each code block. */
function blocksOf(document: string): string[] {
  return [...document.matchAll(/```sh\n([^]*?)```/g)].map(([, block = '']) => block);
}

t.test('the walk-through works as pasted', { skip: !hasCurl && 'curl is not installed' }, async (t) => {
  const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-walk-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  const config = path.join(directory, 'config.yaml');
  await writeFile(
    config,
    `listen: { https: { port: 0 }, http: { port: 0 }, management: { port: 0 } }
registry: { listen: { port: 0 } }
services: { listen: { port: 0 } }
`,
  );
  const data = path.join(directory, 'demo');
  const dev = spawn(...productCommand(['dev', '--config', config, '--data-dir', data]), { stdio: 'pipe' });
  killAtEnd(t, dev);
  let welcome = '';
  await new Promise<void>((resolve, reject) => {
    dev.stdout.on('data', (chunk: Buffer) => {
      welcome += chunk.toString();
      if (/Send a request without a key[^]*curl .*\n/.test(welcome)) resolve();
    });
    dev.once('exit', () => {
      reject(new Error(`dev ended: ${welcome}`));
    });
  });
  const base = /https:\/\/\S+\/v1/.exec(welcome)?.[0] ?? '';
  const key = /x-api-key: (svc_live_\w+)/.exec(welcome)?.[1] ?? '';

  const [set = '', walk = '', check = '', lists = ''] = blocksOf(readFileSync('docs/walk-through.md', 'utf8'));
  t.match(set, /export API_KEY=svc_live_…/, 'the blocks were found');
  const pasted = set
    .replace('svc_live_…', key)
    .replace('https://localhost:8443/v1', base)
    .replaceAll('./var/demo', data);
  // Without the real values, because a port that the system chose can contain 8443, as 18443 does.
  const unreplaced = [key, base, data].reduce((text, value) => text.replaceAll(value, ''), pasted);
  t.notMatch(unreplaced, /8443|\.\/var|…/, 'every address and path was replaced');

  /** Runs all lines in one new shell, so that later lines can use variables of earlier ones. Returns the output. */
  async function paste(...lines: string[]): Promise<string> {
    const shell = spawn('sh', ['-c', ['set -e', ...lines].join('\n')]);
    let output = '';
    for (const stream of [shell.stdout, shell.stderr])
      stream.on('data', (chunk: Buffer) => (output += chunk.toString()));
    await once(shell, 'close');
    return output;
  }
  const responsesIn = (output: string) =>
    output
      .split(/(?<=\})\n?(?=\{"success")/)
      .map(
        (text) => JSON.parse(text) as { success: boolean; data: Record<string, unknown> & Record<string, unknown>[] },
      );

  const [wallets, payout] = responsesIn(await paste(pasted, walk));
  t.match(wallets, { success: true, data: [{ currency: 'NGN', isDefault: true, balance: 5_000_000 }] });
  t.match(payout, { success: true, data: { amount: 250_000, status: 'pending' } });

  const again = walk.replaceAll(/^api .*wallets.*$/gm, '');
  for (;;) {
    const responses = responsesIn(await paste(pasted, again, check));
    t.same(responses[0], payout, 'the same Idempotency-Key returns the same payout');
    const status = responses[1]?.data.status;
    t.ok(['pending', 'processing', 'successful'].includes(String(status)), String(status));
    if (status === 'successful') break;
    await wait(200);
  }
  const [transactions, failed, page] = responsesIn(await paste(pasted, again, lists)).slice(1);
  t.match(transactions, { success: true, data: [{ type: 'debit', status: 'successful', amount: 250_000 }] });
  t.match(failed, { success: true, data: { destinationAccountNumber: '0000000000' } });
  t.match(page, { success: true, meta: { current_page: 1, per_page: 2, total_pages: 1, total_records: 2 } });
});
