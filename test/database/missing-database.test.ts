import { existsSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { run } from '../../src/cli/run.js';
import { onEachDatabase } from './each-database.js';

/** Runs a command; returns its status and stderr without the log. */
async function resultOf(...args: readonly string[]): Promise<readonly [status: number, err: string]> {
  let err = '';
  const status = await run(args, { out: () => undefined, err: (text) => (err += text), isTerminal: false });
  return [status, err];
}

for (const part of ['registry', 'services']) {
  onEachDatabase(`the database of the ${part} is created only with --create`, async (t, url) => {
    const file = /^sqlite:(.*)$/.exec(url)?.[1] ?? null;
    const directory = t.testdir({ token: 'token-of-administrators-0123456789' });
    const config = path.join(directory, 'gateway.yaml');
    const options = { database: { url }, listen: { port: 0 }, ...(part === 'registry' ? { tokenFile: 'token' } : {}) };
    writeFileSync(config, JSON.stringify({ [part]: options, log: { level: 'silent' } }));
    const migrate = ['database', 'migrate', part, '--config', config];
    for (const command of [migrate, [part, '--config', config]]) {
      const [status, err] = await resultOf(...command);
      t.equal(status, 1, err);
      const what =
        file === null ? /^The database mg_test_\w+ at \S+ has no tables of the / : `There is no database ${file} `;
      t.match(err, what);
      t.match(
        err,
        `(${part}.database.url): for a new installation, pass --create (Helm chart: ${part}.createDatabase); otherwise, correct the URL.`,
      );
      t.notOk(file !== null && existsSync(file), 'nothing was created');
    }
    t.same(await resultOf(...migrate, '--create'), [0, '']);
    t.same(await resultOf(...migrate), [0, ''], 'afterwards the database exists');
  });
}
