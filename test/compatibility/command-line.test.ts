import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import t, { type Test } from 'tap';
import type { run } from '../../src/cli/run.js';
import { withoutRedis } from '../adapters/redis-server.js';
import { productCommand } from '../product-command.js';
import { buildFormerRelease, withoutFormerRelease } from './former-release.js';
import { startMixedDeployment } from './mixed-deployment.js';

/*
 * During an upgrade, command lines and registries of both releases coexist: each administration command must work with
 * the other release's registry, and scripts must find the fields that they read.
 */

type Run = (...args: string[]) => Promise<unknown>;

interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a command of the release whose build is in the directory `root`. */
type Start = (args: readonly string[], root: string) => Promise<Ended>;

const asProcess: Start = async (args, root) => {
  const child = spawn(...productCommand(args, [], root), { stdio: ['ignore', 'pipe', 'pipe'] });
  let [stdout, stderr] = ['', ''];
  child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  const [status] = (await once(child, 'close')) as [number | null];
  return { status, stdout, stderr };
};

/** Runs the command in this process, which loads the modules of a release only once: loading takes most of the time. */
const inThisProcess: Start = async (args, root) => {
  const url = pathToFileURL(path.resolve(root, 'dist/cli/run.js')).href;
  const { run: runCommand } = (await import(url)) as { readonly run: typeof run };
  let [stdout, stderr] = ['', ''];
  const status = await runCommand(args, { out: (text) => (stdout += text), err: (text) => (stderr += text) });
  return { status, stdout, stderr };
};

/**
 * Returns a function that runs an administration command of a release with --json, and returns the parsed output. The
 * function fails the test if the command fails.
 */
function commandLine(t: Test, start: Start, root: string): Run {
  return async (...args) => {
    const { status, stdout, stderr } = await start([...args, '--json'], root);
    t.same({ status, stderr }, { status: 0, stderr: '' }, args.join(' '));
    return JSON.parse(stdout) as unknown;
  };
}

/**
 * Runs the administration commands that both releases have. Three of them run as processes, because only a process
 * shows a warning of Node or a handle that stays open: one creates, one shows a secret, one lists.
 */
async function administer(t: Test, root: string, keyIdOption: string): Promise<void> {
  const runProcess = commandLine(t, asProcess, root);
  const run = commandLine(t, inThisProcess, root);
  const merchant = (await runProcess('merchants', 'create', '--name', 'Ada', '--go-live')) as { id: string };
  const { id } = merchant;
  await run('merchants', 'set', id, '--name', 'Ada Stores');
  t.match(await run('merchants', 'list', '--search', 'ada'), [{ id, name: 'Ada Stores' }]);
  t.match(await run('merchants', 'show', id), { id });
  const create = ['keys', 'create', '--merchant', id, '--environment', 'live', '--permission', 'transactions:read'];
  const { keyId } = (await run(...create)) as { keyId: string };
  const { keyId: held } = (await run(...create)) as { keyId: string };
  t.match(await run('keys', 'list', '--merchant', id), [{ keyId: held }, { keyId }]);
  t.match(await runProcess('keys', 'reset', keyId, '--grace', '1h'), { replaces: { keyId } });
  t.match(await run('keys', 'revoke', keyId), { keyId, status: 'REVOKED' });
  t.match(await runProcess('events', 'list', keyIdOption, keyId, '--action', 'key.revoked'), [{ keyId }]);
  t.same(await run('gateways', 'list'), []);
}

t.test(
  'the command line of each release works with the registry of the other',
  { skip: withoutFormerRelease !== false ? withoutFormerRelease : withoutRedis },
  async (t) => {
    const former = await buildFormerRelease();
    for (const [title, cli, registryRoot, keyIdOption] of [
      ['previous command line, registry of this release', former, '.', '--key'],
      ['command line of this release, previous registry', '.', former, '--key-id'],
    ] as const) {
      await t.test(title, async (t) => {
        const deployment = await startMixedDeployment(t, null);
        const registry = await deployment.startRegistry(registryRoot);
        const access = { MERCHANT_GATEWAY_REGISTRY: registry.url, MERCHANT_GATEWAY_TOKEN: deployment.token };
        Object.assign(process.env, access);
        await administer(t, cli, keyIdOption);
        const gateways = await Promise.all([former, '.'].map((root) => deployment.startGateway(root)));
        while ((await registry.gatewayIds()).length < gateways.length) await sleep(20);
        const listed = (await commandLine(t, asProcess, '.')('gateways', 'list')) as { instanceId: string }[];
        t.same(new Set(listed.map(({ instanceId }) => instanceId)), new Set(await registry.gatewayIds()));
        for (const gateway of gateways) await gateway.stop();
        await registry.stop();
      });
    }
  },
);
