import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import t from 'tap';
import { run } from '../../src/cli/run.js';
import { sampleLog } from '../audit/sample-log.js';
import { kindsOf, linesOf, verify, verifyLines } from '../audit/verify-log.js';
import { openLog } from '../telemetry/open-log.js';

/** What shows as an accepted request of a merchant, and needs no secret. */
const forged = JSON.stringify({
  '@timestamp': '2026-11-20T10:00:00.000Z',
  http: { request: { id: 'forged', method: 'POST' }, response: { status_code: 201 } },
  organization: { id: 'm_victim' },
  gateway: { environment: 'live' },
  event: { action: 'api-request', code: 'accepted' },
});

async function startAndStop(file: string): Promise<void> {
  await openLog(file).close(30_000);
}

// A gateway that starts over it takes it for what a process that was killed had begun, and tells its length in its first line.
t.test('a whole line that is put behind a log while no gateway runs is found, and not a note', async (t) => {
  const heads = ['{"service":{"ephemeral_id":"01M7WJMG35EDK4R664YCSW956W"},', '{'];
  for (const head of heads) {
    const file = `${t.testdir()}/access.log`;
    await startAndStop(file);
    appendFileSync(file, forged.replace('{', head));
    await startAndStop(file);
    for (const options of [{}, { partial: true }, { running: true }]) {
      const verdict = verify([readFileSync(file)], options);
      t.same(kindsOf(verdict), ['1:3 foreign']);
      t.same(verdict.notes, []);
    }
  }
});

t.test('an empty line that is put anywhere is found', async (t) => {
  const [one, two] = (await sampleLog(t.testdir())).map(linesOf) as [string[], string[]];
  for (let at = 0; at <= two.length; at += 1) {
    t.ok(kindsOf(verifyLines([one, two.toSpliced(at, 0, '')])).includes(`2:${at + 1} foreign`), `at ${at + 1}`);
  }
});

t.test('what is no line of a chain is neither found nor counted as a request, and that is said', async (t) => {
  const directory = t.testdir({ secret: 'a secret of the tests alone\n' });
  const file = `${directory}/access.log`;
  const log = openLog(file);
  log.write(forged.replaceAll('forged', 'genuine'));
  await log.close(30_000);
  const audit = async (...args: string[]): Promise<{ status: number; out: string; err: string }> => {
    let [out, err] = ['', ''];
    const status = await run(['audit', ...args], { out: (text) => (out += text), err: (text) => (err += text) });
    return { status, out, err };
  };
  t.match(await audit('search', '--merchant', 'm_victim', file), { status: 0, err: '' });
  writeFileSync(file, `${readFileSync(file, 'utf8')}${forged}\n`);
  const found = await audit('search', '--merchant', 'm_victim', file);
  t.match(found.out, 'genuine');
  t.notMatch(found.out, 'forged');
  t.match(found.err, "1 line that looks like a request's is left out: no line of a chain");
  t.equal(
    (await audit('search', '--merchant', 'm_other', file)).err,
    'No line matches.\n',
    'nor what is not asked for',
  );
  const page = `${directory}/page.html`;
  const summed = await audit('summary', '--json', '--html', page, file);
  t.match(JSON.parse(summed.out), { requests: 1, otherLines: 2, leftOutLines: 1 });
  t.match([summed.err, readFileSync(page, 'utf8')], [/ is left out: /, / is left out: /]);
  t.equal((await audit('verify', '--secret-file', `${directory}/secret`, file)).status, 1);
});
