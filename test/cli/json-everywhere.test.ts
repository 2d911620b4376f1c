import { writeFileSync } from 'node:fs';
import { Readable } from 'node:stream';
import t from 'tap';
import { fingerprintCommand } from '../../src/cli/audit/fingerprint.js';
import { loadConfig } from '../../src/config/load.js';
import { readLogSecret } from '../../src/cli/compose/secrets.js';
import { keyFingerprint } from '../../src/telemetry/key-fingerprint.js';
import { ran } from './ran.js';

/**
 * Commands without `--json`. The long-running ones print only their log, which is JSON already; a completion script is
 * not data.
 */
const withoutData = ['gateway', 'registry', 'services', 'completion'];

t.test('every command that prints data has --json, and every file option completes files', async (t) => {
  const { out } = await ran('completion', 'bash');
  const leaves = [...out.matchAll(/^ {2}'([a-z -]+)'\) commands='' options='([^']*)'/gm)];
  t.ok(leaves.length > 30, `${leaves.length} commands`);
  for (const [, command = '', options = ''] of leaves) {
    const names = options.split(' ');
    t.equal(names.includes('--json'), !withoutData.includes(command), `${command} --json`);
    for (const name of names.filter((one) => /^--(?:config|html|line|.*-file)$/.test(one))) {
      t.match(out, `  '${command} ${name}') files=file ;;`, `${command} ${name}`);
    }
  }
});

t.test('commands that used to print only text also print JSON', async (t) => {
  const defaults = await ran('config', 'defaults', '--json');
  t.equal(defaults.status, 0);
  t.match(JSON.parse(defaults.out), { environment: loadConfig({ text: '' }).environment, routes: { length: 6 } });

  const directory = t.testdir({ secret: 'a-secret-of-the-log-that-is-long-enough' });
  const file = `${directory}/gateway.yaml`;
  const text = ['registry', 'services'].map(
    (part) => `${part}: { database: { url: "sqlite:${directory}/${part}.db" } }`,
  );
  writeFileSync(file, `${text.join('\n')}\n`);
  for (const part of ['registry', 'services']) {
    const { status, out } = await ran('database', 'migrate', part, '--create', '--config', file, '--json');
    t.equal(status, 0);
    t.same(JSON.parse(out), { part, upToDate: true });
  }

  const key = `svc_live_${'k'.repeat(49)}`;
  let printed = '';
  const io = { out: (text: string) => (printed += text), err: () => undefined };
  const secretFile = `${directory}/secret`;
  await fingerprintCommand(io, Readable.from([Buffer.from(`${key}\n`)])).parseAsync(
    ['--secret-file', secretFile, '--json'],
    { from: 'user' },
  );
  t.same(JSON.parse(printed), { fingerprints: [keyFingerprint(await readLogSecret(secretFile), key)] });
});
