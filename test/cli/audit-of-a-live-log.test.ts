import { existsSync, readFileSync, renameSync } from 'node:fs';
import t, { type Test } from 'tap';
import { keyText, NoteSigner } from '../../src/evidence/signed-note.js';
import { Witness } from '../../src/registry/checkpoints/witness.js';
import { CheckpointLog } from '../../src/telemetry/checkpoints/checkpoint-log.js';
import { requestLine } from '../audit/sample-log.js';
import { linesOf } from '../audit/verify-log.js';
import { registryFixture, token } from '../registry/registry-fixture.js';
import { startServer } from '../start-server.js';
import { openLog, until } from '../telemetry/open-log.js';
import { ran } from './ran.js';

/** A log that a gateway writes, and the registry that signs a receipt for each checkpoint of the log. */
async function openWitnessedLog(t: Test) {
  const directory = t.testdir({ token });
  const signer = NoteSigner.inMemory('control.example');
  const { app, database } = await registryFixture(t, 'sqlite::memory:', { witness: signer });
  const witness = new Witness({ database, clock: { now: Date.now }, signer });
  const instance = NoteSigner.inMemory('gw.example/a');
  /** Ids of the runs (a run is the part of the log from one process) that have a checkpoint in the registry. */
  const runs = new Set<string>();
  const submit = async (submission: string) => {
    const verdict = await witness.take(JSON.stringify({ key: keyText(instance.key), everySeconds: 10, submission }));
    const [, id = ''] = /\/(\w{26})\n/.exec(submission) ?? [];
    if (verdict.status === 200) runs.add(id);
    return verdict;
  };
  const checkpoints = new CheckpointLog({
    ...{ instance, places: [], everyMilliseconds: 20 },
    receipts: {
      ...{ submit, key: null, registerMilliseconds: 30_000, isRequired: false, besideFile: null },
      close: () => Promise.resolve(),
    },
  });
  const file = `${directory}/access.log`;
  const log = openLog(file, { checkpoints, checkpointMilliseconds: 60 });
  t.teardown(() => log.close(0));
  await checkpoints.register();
  return { app, directory, file, log, runs };
}

/** How many lines each receipt in a log covers. */
function receiptsIn(file: string): number[] {
  const notes = readFileSync(file, 'utf8').matchAll(/"note":"gw\.example\/a\/\w{26}\\n(\d+)\\n/g);
  return [...notes].map(([, size]) => Number(size));
}

t.test('a log that grows while it is verified accuses the registry only of what it really removed', async (t) => {
  const { app, directory, file, log, runs } = await openWitnessedLog(t);
  const grow = async (): Promise<void> => {
    const before = linesOf(readFileSync(file)).length;
    for (let count = 0; count < 5; count += 1) log.write(requestLine());
    await until(() => Math.max(0, ...receiptsIn(file)) > before);
    renameSync(file, `${file}.1`);
    log.reopen();
    await until(() => existsSync(file) && receiptsIn(file).length > 0 && runs.size === 2);
  };
  const fetched = new Map<string, string>();
  let [hasGrown, isFrozen, breaks] = [false, false, false];
  let isDown = false;
  const reply = async (url: string, authorization = ''): Promise<string> => {
    if (isDown) return '';
    if (breaks && url.includes('of=runs')) isDown = true; // after this response
    const { body } = await app.inject({ method: 'GET', url, headers: { authorization } });
    if (!fetched.has(url)) fetched.set(url, body);
    if (url.includes('of=runs') && !hasGrown) {
      hasGrown = true;
      await grow();
    }
    return isFrozen ? (fetched.get(url) ?? '') : body;
  };
  const registry = await startServer(t, ({ url = '', headers }, response) => {
    response.setHeader('content-type', 'application/json');
    void reply(url, headers.authorization).then((body) => response.end(body));
  });
  const access = ['--registry', registry, '--token-file', `${directory}/token`];
  const verify = (...more: string[]) =>
    ran('audit', 'verify', '--checkpoints', 'registry', ...access, ...more, `${file}.1`, file);

  const growing = await verify('--running');
  t.equal(growing.status, 0, growing.out + growing.err);
  t.ok(hasGrown);
  t.match(growing.out, /^note: the log run \w{26} began after the checkpoints were fetched/m);
  isFrozen = true;
  const frozen = await verify('--running');
  t.equal(frozen.status, 1);
  t.match(frozen.out, /^\S+access\.log\.1:\d+: rewritten: the registry signed a receipt for \d+ lines of the log run/m);
  t.match(frozen.out, /^\S+access\.log:\d+: unsigned: the chain \w{26} has no signed checkpoint/m);
  breaks = true;
  const broken = await verify('--running');
  t.equal(broken.status, 1);
  t.match(broken.out, /^\S+access\.log\.1:\d+: rewritten: /m, 'the log is judged all the same');
  t.match(broken.out, /^note: the checkpoints could not be read again after the log/m);
  [isFrozen, breaks, isDown] = [false, false, false];
  await log.close(30_000);
  const whole = await verify();
  t.equal(whole.status, 0, whole.out + whole.err);
  t.notMatch(whole.out, 'began after');
});
