import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { mmdb } from './mmdb-fixture.js';

/** Reads a snapshot and a database while the process is out of file descriptors (EMFILE), and again afterwards. */
const program = `
import { closeSync, openSync, renameSync } from 'node:fs';
import { DatabaseFile } from './dist/adapters/geoip/database-file.js';
import { SnapshotFile } from './dist/adapters/tor/list-files.js';
const [folder] = process.argv.slice(1);
const database = await DatabaseFile.open(folder + '/c.mmdb', { name: 'The database', type: /country/i });
const snapshot = new SnapshotFile(folder + '/snapshot.json');
renameSync(folder + '/next.mmdb', folder + '/c.mmdb');
const look = async () => [
  await database.reload().catch((error) => error.cause.code),
  await snapshot.readChanged().catch((error) => error.cause.code),
];
const open = [];
try {
  for (;;) open.push(openSync('/dev/null'));
} catch {}
const during = await look();
for (const one of open) closeSync(one);
console.log(JSON.stringify([during, await look(), await look()]));
`;

t.test('a file that failed with EMFILE is read again later', (t) => {
  const folder = t.testdir({ 'snapshot.json': 'text' });
  for (const name of ['c.mmdb', 'next.mmdb']) {
    const entries = [['198.51.100.0/24', { country: { iso_code: 'US' } }]] as const;
    writeFileSync(path.join(folder, name), mmdb({ type: 'Test-Country', entries }));
  }
  const shell = 'ulimit -n 128; exec "$0" --input-type=module --eval "$1" "$2"';
  const { stdout, stderr } = spawnSync('bash', ['--norc', '-c', shell, process.execPath, program, folder], {
    encoding: 'utf8',
    env: { PATH: process.env.PATH },
    timeout: 60_000,
  });
  const expected = [
    ['EMFILE', 'EMFILE'],
    [true, 'text'],
    [false, null],
  ];
  t.equal(stdout.trim(), JSON.stringify(expected), stderr);
  t.end();
});
