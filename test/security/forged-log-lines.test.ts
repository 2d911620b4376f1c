import { readFileSync } from 'node:fs';
import t from 'tap';
import type { Verdict } from '../../src/audit/chain-check.js';
import type { VerifierOptions } from '../../src/audit/verifier.js';
import { Chain } from '../../src/telemetry/chain.js';
import { requestLine, sampleLog } from '../audit/sample-log.js';
import { kindsOf, linesOf, verifyLines } from '../audit/verify-log.js';
import { openLog, testSecret, until } from '../telemetry/open-log.js';

/** A line made without the secret: a real one, said to be of another process, and of another request. */
function forged(line: string, id: string): string {
  const other = line.replace(/"ephemeral_id":"\w{26}"/, `"ephemeral_id":"${id.padEnd(26, '0')}"`);
  return other.replace('/v1/payouts/', '/v1/forged/');
}

const ways: Partial<VerifierOptions>[] = [{}, { running: true }, { partial: true }, { partial: true, running: true }];

t.test('a line of a chain that nothing proves is found, wherever it stands in a log', async (t) => {
  const [one, two] = (await sampleLog(t.testdir())).map(linesOf) as [string[], string[]];
  const real = one[3] ?? '';
  t.match(real, '/v1/payouts/');
  for (const options of ways) {
    const what = JSON.stringify(options);
    for (let at = 0; at <= two.length; at += 1) {
      const verdict = verifyLines([one, two.toSpliced(at, 0, forged(real, 'A'))], options);
      t.ok(kindsOf(verdict).includes(`2:${at + 1} foreign`), `in front of line ${at + 1} ${what}`);
    }
    const several = verifyLines(
      [
        [...one, forged(real, 'A')],
        [...two, forged(real, 'B'), forged(real, 'C')],
      ],
      options,
    );
    const found = kindsOf(several).filter((kind) => kind.endsWith('foreign'));
    t.same(found, [`1:${one.length + 1} foreign`, `2:${two.length + 1} foreign`, `2:${two.length + 2} foreign`], what);
    t.notOk(verifyLines([[forged(real, 'A'), ...two.slice(6)]], options).intact, `where a start names another ${what}`);
    t.notOk(verifyLines([[forged(real, 'A'), ...one.slice(2)], two], options).intact, `in front of a part ${what}`);
  }
});

t.test('a part of a log in which one line of a process stands alone is no false alarm', async (t) => {
  const directory = t.testdir();
  const part = (lines: readonly string[], running = false): Verdict => verifyLines([lines], { partial: true, running });
  const [one, two] = (await sampleLog(directory)).map(linesOf) as [string[], string[]];
  t.ok(part([one[3] ?? ''], true).intact, 'one line alone');
  t.ok(part([...one, ...two].slice(13)).intact, 'the end of one process, and the next');

  const file = `${directory}/killed.log`;
  const killed = openLog(file);
  killed.write(requestLine());
  const lineCount = (): number => linesOf(readFileSync(file)).length;
  await until(() => lineCount() === 2);
  const next = openLog(file);
  next.write(requestLine());
  await until(() => lineCount() === 4);
  const lines = linesOf(readFileSync(file));
  t.same(part(lines.slice(1), true).findings, [], 'the last line of a process that was killed, and the next');
  const [onStream, nextOnStream] = [new Chain(testSecret, 'live'), new Chain(testSecret, 'live')];
  onStream.checkpoint('start', Date.now(), 0);
  const streamed = [onStream.seal(requestLine()).toString(), nextOnStream.checkpoint('start', 0, 0).toString()];
  t.same(part(streamed, true).findings, [], 'nor on standard output, where the next one names no line');
  await Promise.all([killed.close(30_000), next.close(30_000)]);
});
