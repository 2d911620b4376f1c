import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import t, { type Test } from 'tap';
import { makeCertificate } from '../edge/certificates.js';
import { killAtEnd, newInstallation, productCommand } from '../product-command.js';
import { version } from '../../src/cli/version.js';

const closed = '{ host: 127.0.0.1, port: 0 }';
/** The longest wait for a text in a server's log, in milliseconds. Without this limit the test could hang. */
const longestMilliseconds = 60_000;

/** Starts a server. `says` waits until its log contains a text, and returns the log. */
async function start(t: Test, command: string, directory: string, options: string) {
  const config = path.join(directory, 'gateway.yaml');
  await writeFile(config, `keyStore: { redis: { url: "redis://127.0.0.1:1" } }\n${options}`);
  const child = spawn(...productCommand([command, '--config', config, ...newInstallation(command)]), {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  killAtEnd(t, child);
  const ended = once(child, 'close');
  let output = '';
  child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const says = (what: RegExp): Promise<string> =>
    new Promise((resolve, reject) => {
      const fail = (): void => {
        reject(new Error(output));
      };
      const timer = setTimeout(fail, longestMilliseconds);
      const check = (): void => {
        if (!what.test(output)) return;
        clearTimeout(timer);
        resolve(output);
      };
      child.stderr.on('data', check);
      child.once('close', fail);
      check();
    });
  await says(/accepts? requests/);
  return { child, ended, says };
}

for (const command of ['registry', 'services']) {
  t.test(`the ${command} process logs its start, and keeps running at reload signals`, async (t) => {
    const directory = t.testdir({ token: 'token-of-administrators-0123456789' });
    const { child, ended, says } = await start(
      t,
      command,
      directory,
      `registry: { listen: ${closed}, database: { url: "sqlite:registry.db" }, tokenFile: token }
services: { listen: ${closed}, database: { url: "sqlite:services.db" } }
`,
    );
    const output = await says(/accepts? requests/);
    const first = JSON.parse(output.split('\n')[0] ?? '') as Record<string, unknown>;
    t.match(first, { msg: 'starting', part: command, version, node: process.versions.node, config: /^[0-9a-f]{16}$/ });
    const url = /"url":"(http:[^"]+)"/.exec(output)?.[1] ?? '';
    const build = `${command}_build_info{version="${version}",node="${process.versions.node}",config="${String(first.config)}"} 1`;
    t.match(await (await fetch(`${url}/metrics`)).text(), build);
    for (const signal of ['SIGHUP', 'SIGUSR2'] as const) {
      child.kill(signal);
      await says(new RegExp(`${signal} has no effect on this process`));
    }
    child.kill('SIGTERM');
    t.same(await ended, [0, null]);
  });

  t.test(`the ${command} process checks its certificate at once on SIGHUP`, async (t) => {
    const { cert, key } = await makeCertificate();
    const directory = t.testdir({ token: 'token-of-administrators-0123456789', cert, key });
    const tls = '{ host: 127.0.0.1, port: 0, certFile: cert, keyFile: key }';
    const { child, ended, says } = await start(
      t,
      command,
      directory,
      `registry: { listen: ${tls}, database: { url: "sqlite:registry.db" }, tokenFile: token }
services:
  { listen: ${closed}, database: { url: "sqlite:services.db" }, operators: { listen: ${tls}, tokenFile: token } }
`,
    );
    // The process also checks the files every ten seconds. It may find the first change soon by chance. The second and
    // third change are made right after the previous one was found, so without the signal each would take ten seconds.
    const times: number[] = [];
    for (let changes = 1; changes <= 3; changes += 1) {
      const next = await makeCertificate();
      await writeFile(path.join(directory, 'cert'), next.cert);
      await writeFile(path.join(directory, 'key'), next.key);
      const changedAt = performance.now();
      child.kill('SIGHUP');
      await says(new RegExp(`(?:the new certificate is in use[^]*){${changes}}`));
      times.push(performance.now() - changedAt);
    }
    t.ok(Math.min(...times.slice(1)) < 5_000, `${times.join(', ')} ms`);
    child.kill('SIGUSR2');
    await says(/SIGUSR2 has no effect on this process; .*SIGHUP reloads only a changed certificate/);
    t.notMatch(await says(/./), 'SIGHUP has no effect');
    child.kill('SIGTERM');
    t.same(await ended, [0, null]);
  });
}
