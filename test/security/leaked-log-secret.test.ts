import { readFileSync } from 'node:fs';
import t from 'tap';
import { chainHash, logSecretOf } from '../../src/telemetry/chain.js';
import { requestLine } from '../audit/sample-log.js';
import { kindsOf, linesOf, verifyLines } from '../audit/verify-log.js';
import { openLog, testSecret } from '../telemetry/open-log.js';

// A log's secret was renewed because somebody got hold of it. Older chains are still verified under the old one, so it is
// given as well; but a chain that began under the new secret must not go on under the old one.

t.test('who has an older secret of the log cannot write a chain on that began under a newer one', async (t) => {
  const file = `${t.testdir()}/access.log`;
  await openLog(file).close(30_000);
  const renewed = logSecretOf(Buffer.from('the next secret of the tests'));
  const secrets = [renewed, testSecret];
  const log = openLog(file, { secret: renewed });
  for (let count = 0; count < 4; count += 1) log.write(requestLine({ code: 'key_unknown' }));
  await log.close(30_000);
  const lines = linesOf(readFileSync(file));
  t.same([verifyLines([lines], { secrets }).intact, lines.length], [true, 8]);

  const from = 4; // the second request of the second process
  const forged = lines.slice(0, from);
  for (const line of lines.slice(from)) {
    const text = line.replace('key_unknown', 'accepted').slice(0, -76);
    const previous = (JSON.parse(forged.at(-1) ?? '') as { event: { hash: string } }).event.hash;
    forged.push(`${text},"hash":"${chainHash(testSecret, previous, text)}"}}`);
  }
  const [first] = kindsOf(verifyLines([forged], { secrets }));
  t.equal(first, `1:${from + 1} edited`);
});
