import { existsSync, linkSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import type { ChainedLog } from '../../src/telemetry/chained-log.js';
import { ask, liveKey, startTestGateway, startUpstream } from '../edge/harness.js';
import { openLog, until } from '../telemetry/open-log.js';

const headers = [['x-api-key', liveKey] as const];

/** Opens a log in a directory of its own, which looks for a rename again and again. */
function openIn(
  folder: string,
  renameMilliseconds = 10,
): { accessLog: ChainedLog; file: string; problems: (string | null)[] } {
  const file = path.join(folder, 'access.log');
  const problems: (string | null)[] = [];
  const onProblem = (problem: string | null) => problems.push(problem);
  return { accessLog: openLog(file, { renameMilliseconds, onProblem }), file, problems };
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

/** The requests that a file has lines of. */
function idsIn(file: string): string[] {
  const lines = readFileSync(file, 'utf8').trimEnd().split('\n');
  return lines.flatMap((line) => /"request":\{"id":"(\w+)"/.exec(line)?.slice(1) ?? []);
}

// Nobody tells the process that its file was removed: until it looked, 17 requests were accepted without a line.
for (const [what, restore] of [
  ['the file', false],
  ['its directory', true],
] as const) {
  t.test(`lines that were written after ${what} was removed are written once more`, async (t) => {
    const upstream = await startUpstream(t);
    const folder = path.join(t.testdir(), 'logs');
    const { accessLog, file } = openIn(folder, 300);
    const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, accessLog });
    const accepted: string[] = [];
    const accept = async (): Promise<boolean> => {
      const answer = await ask(gateway, { headers });
      if (answer.status === 200) accepted.push(answer.header('x-request-id') ?? '');
      return answer.status === 200;
    };
    await accept();
    await until(() => idsIn(file).length === 1);
    await wait(700);
    const before = accepted.length;
    rmSync(restore ? folder : file, { recursive: true });
    for (let count = 0; count < 40; count += 1) await accept();
    t.ok(accepted.length > before, 'it could not know yet');
    if (restore) {
      await until(() => accessLog.problem() !== null);
      mkdirSync(folder);
    }
    await until(() => existsSync(file) && accessLog.problem() === null);
    t.ok(await accept(), 'it goes on');
    await until(() => idsIn(file).includes(accepted.at(-1) ?? ''));
    t.same(
      idsIn(file).filter((id) => accepted.includes(id)),
      accepted.slice(before),
      'each has its line, once and in its order',
    );
    t.equal(accessLog.lost(), 0);
  });
}

t.test('a process that ends before it has looked writes them once more as well', async (t) => {
  const folder = path.join(t.testdir(), 'logs');
  const file = path.join(folder, 'access.log');
  const log = openLog(file);
  log.write('{"event":{"code":"accepted"}}');
  await until(() => readFileSync(file, 'utf8').includes('accepted'));
  rmSync(file);
  log.write('{"event":{"code":"accepted later"}}');
  await log.close(1_000);
  const text = readFileSync(file, 'utf8');
  t.match(text, /"accepted"[^]*"accepted later"[^]*"reason":"end"/);
  t.equal(log.heldBytes(), 0);

  const lost = openLog(path.join(folder, 'other.log'));
  rmSync(folder, { recursive: true });
  lost.write('{"event":{"code":"accepted"}}');
  await lost.close(1_000);
  t.ok(lost.heldBytes() > 0, 'where it cannot, it says so: the process ends with status 1');
});

t.test('of more than can be held of a removed file, the number of lost lines is exact', async (t) => {
  const folder = path.join(t.testdir(), 'logs');
  const file = path.join(folder, 'access.log');
  const log = openLog(file);
  rmSync(file);
  const line = (count: number): string => `{"filler":"${'x'.repeat(100_000)}","event":{"code":"line ${count}"}}`;
  const lines = 400;
  for (let count = 0; count < lines; count += 1) {
    log.write(line(count));
    await until(() => log.heldBytes() < 4_000_000);
  }
  log.reopen();
  await until(() => existsSync(file) && readFileSync(file, 'latin1').includes('"reason":"file-start"'));
  const there = readFileSync(file, 'latin1').match(/"code":"line \d+"/g) ?? [];
  t.ok(log.lost() > 0);
  // The first line is the checkpoint of the start.
  t.equal(there.length + log.lost(), lines + 1);
  t.equal(there.at(-1), `"code":"line ${lines - 1}"`);
});
