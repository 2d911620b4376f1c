import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, openSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';

/** What runs a module: without the instrumentation of the test runner, whose threads a process can wait for at its end. */
function moduleCommand(script: string): [string, string[]] {
  return ['env', ['-u', 'NODE_OPTIONS', process.execPath, '--input-type=module', '-e', script]];
}

// Standard output is a pipe in a container. Each time that it was full, requests were refused for a second.
t.test('an access log whose reader is late for a moment is no failure, and loses nothing', async (t) => {
  const lines = 2_000;
  const script = `
    import { ChainedLog } from './dist/telemetry/chained-log.js';
    process.stdout.on('error', () => undefined); // as the product does: from then on a full pipe is not waited for
    const sink = new ChainedLog({ destination: 'stdout', secret: null, environment: 'live', now: Date.now });
    const problems = new Set();
    const look = setInterval(() => {
      if (sink.problem() !== null) problems.add(sink.problem());
    }, 1);
    for (let count = 0; count < ${lines}; count += 1) sink.write(JSON.stringify({ event: { filler: 'x'.repeat(1_000) } }));
    while (sink.heldBytes() > 0) await new Promise((resolve) => setTimeout(resolve, 5));
    clearInterval(look);
    await sink.close(10_000);
    process.stderr.write(JSON.stringify([...problems]));
    process.exit();
  `;
  const child = spawn(...moduleCommand(script), { stdio: ['ignore', 'pipe', 'pipe'] });
  t.teardown(() => child.kill('SIGKILL'));
  await wait(500);
  const [log, problems] = await Promise.all([text(child.stdout), text(child.stderr)]);
  t.equal(problems, '[]');
  t.equal(log.split('\n').length, lines + 3, 'with its start and its end');
});

// It stopped the process, with all of its requests, until somebody read.
t.test('the log of the product is not waited for where nobody reads it', async (t) => {
  const script = `
    import { createLogger } from './dist/telemetry/logger.js';
    process.stderr.on('error', () => undefined);
    const log = createLogger('info');
    for (let count = 0; count < 5_000; count += 1) log.info({ filler: 'x'.repeat(1_000) }, 'message ' + count);
    process.stdout.write('alive');
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    process.exit();
  `;
  const child = spawn(...moduleCommand(script), { stdio: ['ignore', 'pipe', 'pipe'] });
  t.teardown(() => child.kill('SIGKILL'));
  const [said] = (await once(child.stdout, 'data')) as [Buffer];
  t.equal(String(said), 'alive');
  const lines = (await text(child.stderr)).split('\n').filter((line) => line !== '');
  t.same(
    lines.map((line) => (JSON.parse(line) as { msg: string }).msg),
    lines.map((_, count) => `message ${count}`),
    'what was held comes whole and in its order when somebody does',
  );
  t.ok(lines.length > 900, 'so much at least');
});

// The first line that it could not take ended the process.
t.test(
  'a full disk under the log of the product ends nothing',
  { skip: !existsSync('/dev/full') && 'no /dev/full' },
  async (t) => {
    const script = `
      import { createLogger } from './dist/telemetry/logger.js';
      const log = createLogger('info');
      for (let count = 0; count < 3; count += 1) {
        log.info('message ' + count);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      process.stdout.write('alive');
    `;
    const full = openSync('/dev/full', 'w');
    t.teardown(() => {
      closeSync(full);
    });
    const child = spawn(...moduleCommand(script), { stdio: ['ignore', 'pipe', full] });
    t.teardown(() => child.kill('SIGKILL'));
    const ended = once(child, 'exit');
    t.equal(child.stdout === null ? null : await text(child.stdout), 'alive');
    t.same(await ended, [0, null]);
  },
);
