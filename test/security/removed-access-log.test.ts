import { linkSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import type { ChainedLog } from '../../src/telemetry/chained-log.js';
import { ask, liveKey, startTestGateway, startUpstream } from '../http/harness.js';
import { openLog, until } from '../telemetry/open-log.js';

const headers = [['x-api-key', liveKey] as const];

/** Opens a log in a directory of its own, which looks for a rename all the time. */
function openIn(folder: string): { accessLog: ChainedLog; file: string; problems: (string | null)[] } {
  const file = path.join(folder, 'access.log');
  const problems: (string | null)[] = [];
  const onProblem = (problem: string | null) => problems.push(problem);
  return { accessLog: openLog(file, { renameMilliseconds: 10, onProblem }), file, problems };
}

// The directory of the access log was removed: requests were answered 200, and their lines went into a file without a name.
t.test('no request is taken while the access log goes into a file that was removed', async (t) => {
  const upstream = await startUpstream(t);
  const folder = path.join(t.testdir(), 'logs');
  const { accessLog, file, problems } = openIn(folder);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, accessLog });
  t.equal((await ask(gateway, { headers })).status, 200);
  rmSync(folder, { recursive: true });
  await until(() => accessLog.problem() !== null);
  t.equal((await ask(gateway, { headers })).status, 503);
  const ready = await fetch(`http://127.0.0.1:${gateway.management}/readyz`);
  t.equal(ready.status, 503);
  t.match(await ready.json(), {
    problems: [/^access log: the file was removed, and no new one can be opened; lines lost: 0/],
  });
  t.equal(upstream.seen.length, 1);

  mkdirSync(folder);
  await until(() => accessLog.problem() === null);
  t.equal((await ask(gateway, { headers })).status, 200, 'and it goes on by itself');
  await until(() => readFileSync(file, 'utf8').includes('"status_code":200'));
  await until(() => problems.length === 2);
  t.match(problems, [/^the file was removed/, null], 'each is told once');
});

t.test('a file that was renamed, or has another name, is no loss', async (t) => {
  const folder = path.join(t.testdir(), 'logs');
  const { accessLog, file, problems } = openIn(folder);
  t.teardown(() => accessLog.close(1_000));
  let failed = false;
  linkSync(file, path.join(path.dirname(folder), 'kept.log'));
  renameSync(folder, `${folder}.1`);
  setTimeout(() => (failed = true), 200);
  await until(() => failed);
  t.same(problems, [], 'lines go on into it');
});
