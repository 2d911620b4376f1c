import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, cpSync, readFileSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { freePort } from '../adapters/redis-server.js';
import { manifestsIn, render } from '../helm/render.js';

const document = readFileSync('docs/operations.md', 'utf8');
const chapter = /\n## The first payout\n[^]*?(?=\n## )/.exec(document)?.[0] ?? '';
const [onOneMachine = '', inACluster = ''] = [...chapter.matchAll(/```sh\n([^]*?)```/g)].map(([, block = '']) => block);

/**
 * Returns the commands of a code block, one per entry. Continuation lines are joined to their command, and the texts of
 * here-documents are left out.
 */
function commandsIn(block: string): string[] {
  return block
    .replaceAll(/<<'YAML'\n[^]*?\nYAML\n/g, "<<'YAML'\n")
    .replaceAll('\\\n', '')
    .trim()
    .split('\n');
}

t.test("the runbook's commands on one machine lead to a paid payout", async (t) => {
  t.ok(commandsIn(onOneMachine).length <= 15, `${commandsIn(onOneMachine).length} commands`);
  const directory = t.testdir();
  for (const name of ['package.json', 'package-lock.json', 'src', 'tor-exit-list', 'config']) {
    cpSync(name, path.join(directory, name), { recursive: true });
  }
  // With these packages, `npm ci` and its download are not needed.
  symlinkSync(path.resolve('node_modules'), path.join(directory, 'node_modules'));

  const documented = [8443, 6379, 9090];
  const ports: number[] = [];
  while (ports.length < documented.length + 4) ports.push(await freePort());
  let pasted = onOneMachine.replace('npm ci && ', '');
  for (const port of documented) t.match(pasted, String(port));
  // In one pass, because the digits of a free port can contain a documented port.
  pasted = pasted.replaceAll(new RegExp(documented.join('|'), 'g'), (port) =>
    String(ports[documented.indexOf(Number(port))]),
  );
  // Ports for the listeners that the configuration leaves at their defaults.
  const [plain, registry, services, operators] = ports.slice(documented.length);
  pasted = pasted
    .replace('listen:\n', `listen:\n  http: { port: ${plain} }\n  management: { port: ${ports[2]} }\n`)
    .replace('registry: {', `registry: { listen: { port: ${registry} },`)
    .replace('services: {', `upstreams:${upstreams(services)}\nservices: { listen: { port: ${services} },`)
    .replace('operators: {', `operators: { listen: { port: ${operators} },`);

  const ends = `kill %1 %2 %3; redis-cli -p ${ports[1]} shutdown nosave`;
  const shell = spawn('bash', ['-c', `set -em\ntrap '${ends}' EXIT\n${pasted}`], { cwd: directory, stdio: 'pipe' });
  const output = { out: '', err: '' };
  shell.stdout.on('data', (chunk: Buffer) => (output.out += chunk.toString()));
  shell.stderr.on('data', (chunk: Buffer) => (output.err += chunk.toString()));
  await once(shell, 'close');
  t.match(output.out, /"status":"successful"/, output.err.slice(-4000));
});

t.test("the runbook's cluster commands refer to objects that the chart creates", (t) => {
  const directory = t.testdir({
    'my-values.yaml': '',
    // Each stub records its invocation. kubectl prints nothing, because no command depends on its output.
    kubectl: '#!/bin/sh\nprintf "kubectl %s\\n" "$*" >> calls\n',
    helm: '#!/bin/sh\nprintf "helm %s\\n" "$*" >> calls\n',
    openssl: '#!/bin/sh\necho 0123456789abcdef0123456789abcdef\n',
  });
  for (const name of ['kubectl', 'helm', 'openssl']) chmodSync(path.join(directory, name), 0o755);
  const PATH = `${directory}:${process.env.PATH ?? ''}`;
  const { status, stderr } = spawnSync('bash', ['--norc', '--noprofile', '-ec', inACluster.replaceAll('m_…', 'm_1')], {
    ...{ cwd: directory, encoding: 'utf8', env: { PATH } },
  });
  t.same({ status, stderr }, { status: 0, stderr: '' });
  const calls = readFileSync(path.join(directory, 'calls'), 'utf8').trim().split('\n');

  const rendered = render('backing-services', {
    registry: { enabled: true },
    services: { enabled: true },
    secrets: { operatorsToken: { existingSecret: 'operators-token' } },
    fullnameOverride: 'gateway-merchant-gateway',
  });
  t.equal(rendered.status, 0, rendered.stderr);
  const manifests = manifestsIn(rendered);
  const deployments = manifests.filter(({ kind }) => kind === 'Deployment').map(({ metadata }) => metadata.name);
  const executed = calls.filter((call) => call.includes(' exec '));
  t.equal(executed.length, 4);
  for (const call of executed) {
    const [, deployment = '', command = ''] =
      /^kubectl -n payments exec deployment\/(\S+) -- node \/app\/dist\/cli\/main\.js (.*) --config/.exec(call) ?? [];
    t.ok(deployments.includes(deployment), `${call}: ${deployments.join()}`);
    t.match(call, '/etc/merchant-gateway/config/gateway.yaml');
    t.equal(
      deployment.endsWith('-services'),
      command.startsWith('wallets '),
      'the deployment that mounts the token of the command',
    );
  }
  t.match(JSON.stringify(manifests), '"secretName":"operators-token"', 'the secret is mounted');
  t.match(calls[0], 'create secret generic operators-token');
  t.match(calls[1], /^helm -n payments upgrade --install gateway \.\/helm --values my-values\.yaml/);
  t.end();
});

/** Returns the `upstreams` of a configuration, as YAML, for services that listen on this port. */
function upstreams(port: number | undefined): string {
  const at = `{ url: 'http://127.0.0.1:${port}' }`;
  return ` { transactions: ${at}, payouts: ${at}, customers: ${at} }`;
}
