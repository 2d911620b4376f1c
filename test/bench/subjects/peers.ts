import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { nodePeer } from './node-peer.js';
import type { Subject } from './subject.js';

const folder = 'test/bench/subjects/peers';
let problem: string | null | undefined;

/** Installs the compared proxies in a separate folder; returns the reason of a failure, otherwise null. */
function install(): string | null {
  if (existsSync(`${folder}/node_modules/express-gateway`)) return null;
  const args = ['ci', '--no-audit', '--no-fund', '--ignore-scripts', '--loglevel=error'];
  const { status } = spawnSync('npm', args, { cwd: folder, stdio: ['ignore', 'ignore', 'inherit'] });
  return status === 0 ? null : `npm ci in ${folder} failed`;
}

const titles = {
  'fast-proxy': 'fast-proxy',
  'http-proxy': 'http-proxy',
  express: 'express + http-proxy-middleware',
  'express-gateway': 'Express Gateway',
};

/** Proxies from npm, each with a program in `peers/`. */
export const peers: readonly Subject[] = Object.entries(titles).map(([name, title]) =>
  nodePeer({
    ...{ name, title, program: `peers/${name}.mjs`, log: false },
    missing: () => (problem === undefined ? (problem = install()) : problem),
  }),
);
