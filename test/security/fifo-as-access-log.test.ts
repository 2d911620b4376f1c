import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import t from 'tap';
import { productCommand } from '../product-command.js';
import { openLog, until } from '../telemetry/open-log.js';

// Who opens a FIFO waits until somebody reads it. As the destination of the access log it kept a gateway from starting, without a word,
// and put in the place of the file later it kept the process from ending.

const fifoIn = (folder: string): string => {
  const file = path.join(folder, 'fifo');
  execFileSync('mkfifo', [file]);
  return file;
};

for (const what of ['a FIFO', 'a device', 'a directory']) {
  t.test(`a gateway does not start with ${what} as its access log, and says so`, { timeout: 60_000 }, async (t) => {
    const folder = t.testdir({ 'records.json': '{}' });
    const destination = what === 'a FIFO' ? fifoIn(folder) : what === 'a device' ? '/dev/null' : folder;
    const config = {
      listen: { https: null, http: { host: '127.0.0.1', port: 0 }, management: null },
      keyStore: { kind: 'memory', memory: { recordsFile: path.join(folder, 'records.json') } },
      trustedProxies: ['127.0.0.1'],
      torExits: { enabled: false },
      accessLog: { destination },
      upstreams: { transactions: { url: 'http://127.0.0.1:9' } },
      routes: [{ path: '/transactions', upstream: 'transactions', resource: 'transactions' }],
    };
    const file = path.join(folder, 'gateway.json');
    writeFileSync(file, JSON.stringify(config));
    const child = spawn(...productCommand(['gateway', '--config', file]), { stdio: ['ignore', 'ignore', 'pipe'] });
    const tooLong = setTimeout(() => child.kill('SIGKILL'), 30_000);
    t.teardown(() => {
      clearTimeout(tooLong);
      child.kill('SIGKILL');
    });
    const [errors] = await Promise.all([text(child.stderr), once(child, 'exit')]);
    t.ok((child.exitCode ?? 0) > 0, 'it ends by itself, and not well');
    t.match(errors, what === 'a directory' ? 'it is a directory; name a file' : `it is ${what}, and has to be a file`);
    const check = spawnSync(...productCommand(['config', 'check', '--connect', '--for', 'gateway', '--config', file]), {
      encoding: 'utf8',
    });
    t.match(check.stdout + check.stderr, what === 'a directory' ? 'is a directory' : `it is ${what}`);
  });
}

t.test('a FIFO that takes the place of the file takes no line, and the process ends', async (t) => {
  const folder = t.testdir({});
  const file = path.join(folder, 'access.log');
  const failures: string[] = [];
  const log = openLog(file, { onReopenFailure: ({ message }) => failures.push(message) });
  log.write('{"event":{"code":"before"}}');
  renameSync(file, `${file}.1`);
  renameSync(fifoIn(folder), file);
  log.reopen();
  await until(() => failures.length === 1);
  const reader = spawn('cat', [file], { stdio: ['ignore', 'pipe', 'ignore'] });
  t.teardown(() => reader.kill('SIGKILL'));
  // It opens now that somebody reads it.
  await until(() => {
    log.reopen();
    log.write('{"event":{"code":"after"}}');
    return log.lost() === 0 && readFileSync(`${file}.1`, 'utf8').includes('"after"');
  });
  await log.close(1_000);
  t.match(readFileSync(`${file}.1`, 'utf8'), /"before"[^]*"after"[^]*"reason":"end"/);
  reader.kill('SIGKILL');
  t.equal(await text(reader.stdout), '', 'whoever reads it gets nothing');
});
