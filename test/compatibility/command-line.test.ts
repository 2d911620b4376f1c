import { spawn } from 'node:child_process';
import { once } from 'node:events';
import t, { type Test } from 'tap';
import { withoutRedis } from '../adapters/redis-server.js';
import { productCommand } from '../product-command.js';
import { buildFormerRelease, withoutFormerRelease } from './former-release.js';
import { startMixedDeployment } from './mixed-deployment.js';

/*
 * During an upgrade, command lines and registries of both releases coexist: each administration command must work with
 * the other release's registry, and scripts must find the fields that they read.
 */

type Run = (...args: string[]) => Promise<unknown>;

/** Runs an administration command of a release with --json; fails the test if the command fails. */
function commandLine(t: Test, root: string, { url, token }: { url: string; token: string }): Run {
  return async (...args) => {
    const child = spawn(...productCommand([...args, '--json'], [], root), {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, MERCHANT_GATEWAY_REGISTRY: url, MERCHANT_GATEWAY_TOKEN: token },
    });
    let [stdout, stderr] = ['', ''];
    child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
    const [status] = (await once(child, 'close')) as [number];
    t.same({ status, stderr }, { status: 0, stderr: '' }, args.join(' '));
    return JSON.parse(stdout) as unknown;
  };
}

/** Runs the administration commands that both releases have. */
async function administer(t: Test, run: Run, keyIdOption: string): Promise<void> {
  const merchant = (await run('merchants', 'create', '--name', 'Ada', '--go-live')) as { id: string };
  const { id } = merchant;
  await run('merchants', 'set', id, '--name', 'Ada Stores');
  t.match(await run('merchants', 'list', '--search', 'ada'), [{ id, name: 'Ada Stores' }]);
  t.match(await run('merchants', 'show', id), { id });
  const create = ['keys', 'create', '--merchant', id, '--environment', 'live', '--permission', 'transactions:read'];
  const { keyId } = (await run(...create)) as { keyId: string };
  const { keyId: held } = (await run(...create)) as { keyId: string };
  t.match(await run('keys', 'list', '--merchant', id), [{ keyId: held }, { keyId }]);
  t.match(await run('keys', 'reset', keyId, '--grace', '1h'), { replaces: { keyId } });
  t.match(await run('keys', 'revoke', keyId), { keyId, status: 'REVOKED' });
  t.match(await run('events', 'list', keyIdOption, keyId, '--action', 'key.revoked'), [{ keyId }]);
  t.same(await run('gateways', 'list'), []);
}

t.test(
  'the command line of each release works with the registry of the other',
  { skip: withoutFormerRelease !== false ? withoutFormerRelease : withoutRedis },
  async (t) => {
    const former = await buildFormerRelease(t);
    for (const [title, cli, registryRoot, keyIdOption] of [
      ['previous command line, registry of this release', former, '.', '--key'],
      ['command line of this release, previous registry', '.', former, '--key-id'],
    ] as const) {
      await t.test(title, async (t) => {
        const deployment = await startMixedDeployment(t, null);
        const registry = await deployment.startRegistry(registryRoot);
        await administer(t, commandLine(t, cli, { url: registry.url, token: deployment.token }), keyIdOption);
        await registry.stop();
      });
    }
  },
);
