import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import t from 'tap';
import { newInstallation, productCommand } from '../product-command.js';
import { version } from '../../src/cli/version.js';

const closed = '{ host: 127.0.0.1, port: 0 }';

for (const command of ['registry', 'services']) {
  t.test(`the ${command} process logs its start, and keeps running at reload signals`, async (t) => {
    const directory = t.testdir({ token: 'token-of-administrators-0123456789' });
    const config = path.join(directory, 'gateway.yaml');
    await writeFile(
      config,
      `keyStore: { redis: { url: "redis://127.0.0.1:1" } }
registry: { listen: ${closed}, database: { url: "sqlite:registry.db" }, tokenFile: token }
services: { listen: ${closed}, database: { url: "sqlite:services.db" } }
`,
    );
    const child = spawn(...productCommand([command, '--config', config, ...newInstallation(command)]), {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    t.teardown(() => child.kill('SIGKILL'));
    const ended = once(child, 'close');
    let told = '';
    const says = (what: RegExp): Promise<void> =>
      new Promise((resolve, reject) => {
        const look = (): void => {
          if (what.test(told)) resolve();
        };
        child.stderr.on('data', look);
        child.once('close', () => {
          reject(new Error(told));
        });
        look();
      });
    child.stderr.on('data', (chunk: Buffer) => (told += chunk.toString()));
    await says(/takes? requests/);
    const first = JSON.parse(told.split('\n')[0] ?? '') as Record<string, unknown>;
    t.match(first, { msg: 'starting', part: command, version, node: process.versions.node, config: /^[0-9a-f]{16}$/ });
    const url = /"url":"(http:[^"]+)"/.exec(told)?.[1] ?? '';
    const build = `${command}_build_info{version="${version}",node="${process.versions.node}",config="${String(first.config)}"} 1`;
    t.match(await (await fetch(`${url}/metrics`)).text(), build);
    for (const signal of ['SIGHUP', 'SIGUSR2'] as const) {
      child.kill(signal);
      await says(new RegExp(`${signal} has no effect on this process`));
    }
    child.kill('SIGTERM');
    t.same(await ended, [0, null]);
  });
}
