import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import t from 'tap';
import { ChainedLog } from '../../src/telemetry/chained-log.js';
import { ask, liveKey, startTestGateway, startUpstream } from '../edge/harness.js';

// A full disk hung the process for ever; a log reader that had died ended the log without a word, while requests were
// accepted that left no trace.
const key = ['x-api-key', liveKey] as const;

const ending = { secret: null, environment: 'live', now: () => Date.now(), onReopenFailure: () => undefined };

t.test('no request is taken while the access log cannot be written', async (t) => {
  const upstream = await startUpstream(t);
  let problem: string | null = null;
  const written: string[] = [];
  const accessLog = {
    write: (line: string) => written.push(line),
    problem: () => problem,
    lost: () => 0,
    foreignBytes: () => 0,
    heldBytes: () => 0,
    close: () => Promise.resolve(),
  };
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, accessLog });
  t.equal((await ask(gateway, { headers: [key] })).status, 200);
  problem = 'writing fails: ENOSPC';
  for (const headers of [[key], []]) {
    const answer = await ask(gateway, { headers });
    t.equal(answer.status, 503);
    t.equal(answer.body, '{"success":false,"message":"Service temporarily unavailable","data":null}');
  }
  t.equal(upstream.seen.length, 1);
  const ready = await fetch(`http://127.0.0.1:${gateway.management}/readyz`);
  t.equal(ready.status, 503);
  t.match(await ready.json(), { problems: ['access log: writing fails: ENOSPC'] });
  problem = null;
  t.equal((await ask(gateway, { headers: [key] })).status, 200, 'and it goes on by itself');
  t.equal(written.length, 4);
});

t.test(
  'with onFailure: continue requests are taken on a full disk, and whoever looks at readiness or metrics sees it',
  { skip: !existsSync('/dev/full') && 'no /dev/full' },
  async (t) => {
    const upstream = await startUpstream(t);
    const start = async (onFailure: 'refuse' | 'continue') => {
      const accessLog = new ChainedLog({ ...ending, destination: '/dev/full' });
      const gateway = await startTestGateway(t, {
        upstreamUrl: upstream.url,
        accessLog,
        config: { accessLog: { onFailure } },
      });
      while (accessLog.problem() === null) await new Promise((resolve) => setImmediate(resolve));
      const answer = await ask(gateway, { headers: [key] });
      const management = `http://127.0.0.1:${gateway.management}`;
      const ready = await fetch(`${management}/readyz`);
      const metrics = await (await fetch(`${management}/metrics`)).text();
      return { answer, ready: ready.status, told: await ready.json(), metrics };
    };
    const going = await start('continue');
    t.equal(going.answer.status, 200);
    t.equal(going.ready, 200);
    t.match(going.told, {
      problems: [],
      warnings: [/^access log: writing fails: ENOSPC; lines lost: 0; requests are taken/],
    });
    const refusing = await start('refuse');
    t.equal(refusing.answer.status, 503);
    t.equal(refusing.ready, 503);
    t.match(refusing.told, { problems: [/^access log: writing fails: ENOSPC/], warnings: [] });
    for (const { metrics } of [going, refusing]) t.match(metrics, /^gateway_access_log_failing 1$/m);
    t.equal(upstream.seen.length, 1);
  },
);

t.test(
  'a full disk is told of, and waited for by nobody',
  { skip: !existsSync('/dev/full') && 'no /dev/full' },
  async (t) => {
    const told: (string | null)[] = [];
    const onProblem = (problem: string | null): unknown => told.push(problem);
    const sink = new ChainedLog({ ...ending, destination: '/dev/full', renameMilliseconds: 1, onProblem });
    t.equal(sink.problem(), null);
    sink.write('{"event":{"a":1}}');
    while (sink.problem() === null) await new Promise((resolve) => setImmediate(resolve));
    t.match(sink.problem(), /ENOSPC/);
    while (told.length === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    for (let turn = 0; turn < 10; turn += 1) await new Promise((resolve) => setTimeout(resolve, 1));
    t.equal(told.length, 1, 'once');
    t.match(told, [/ENOSPC/]);
    for (let count = 0; count < 40; count += 1)
      sink.write(JSON.stringify({ event: { filler: 'x'.repeat(1_000_000) } }));
    t.match(sink.problem(), /ENOSPC; lines lost: (?:2[3-9]|3\d)/, 'what cannot be held is lost: memory stays bounded');
    await sink.close(10);
  },
);

t.test('a reader that is gone or asleep stalls nothing and is told of', async (t) => {
  // A process of its own writes to a pipe that nobody reads, and then to one whose reader is gone.
  const script = `
    import { ChainedLog } from './dist/telemetry/chained-log.js';
    const sink = new ChainedLog({ destination: 'stdout', secret: null, environment: 'live', now: Date.now });
    const filler = 'x'.repeat(100_000);
    for (let count = 0; count < 120; count += 1) sink.write(JSON.stringify({ event: { filler } }));
    process.stderr.write('held: ' + sink.problem() + '\\n');
    const timer = setInterval(() => {
      sink.write('{"event":{"more":1}}');
      const problem = sink.problem();
      if (!problem?.includes('EPIPE')) return;
      process.stderr.write('gone: ' + problem + '\\n');
      clearInterval(timer);
      sink.close(10).then(() => process.exit(0));
    }, 20);
  `;
  // Without the instrumentation of the test runner, whose threads a process can wait for at its end.
  const node = ['-u', 'NODE_OPTIONS', process.execPath, '--input-type=module', '-e', script];
  const child = spawn('env', node, { stdio: ['ignore', 'pipe', 'pipe'] });
  t.teardown(() => child.kill('SIGKILL'));
  let told = '';
  const asleep = new Promise<void>((resolve) => {
    child.stderr.on('data', (chunk: Buffer) => {
      told += chunk.toString();
      if (told.includes('held:')) resolve();
    });
  });
  await asleep;
  t.match(told, /held: \d+ bytes wait to be written/);
  child.stdout.destroy();
  const [status] = (await once(child, 'exit')) as [number | null];
  t.equal(status, 0);
  t.match(told, /gone: writing fails: EPIPE/);
});
