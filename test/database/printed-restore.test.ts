import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { openMigrated } from '../../src/database/open-database.js';
import { migrations } from '../../src/registry/migrations/migrations.js';
import type { RegistryTables } from '../../src/registry/tables.js';
import { printedBlocks } from '../printed-commands.js';
import { createPostgresDatabase, postgresAlone } from './each-database.js';

const hasClient = ['psql', 'pg_dump', 'pg_restore'].every((name) => spawnSync(name, ['--version']).status === 0);
const skip = hasClient ? postgresAlone.skip : 'no PostgreSQL client: THE PRINTED RESTORE IS NOT TESTED';

/**
 * Returns the lines that start with one of these commands, from the PostgreSQL block under this heading of
 * docs/operations.md.
 */
function printed(heading: string, ...commands: string[]): string[] {
  const [block] = printedBlocks('docs/operations.md').filter(
    (one) => one.heading === heading && one.commands.includes('PGSERVICEFILE'),
  );
  return (block?.commands.split('\n') ?? []).filter((line) => commands.includes(line.split(' ')[0] ?? ''));
}

// Regression: `pg_restore --clean` left the tables that the upgrade had created, because the backup did not have them.
// The next upgrade then failed, because it tried to create them again.
t.test('a backup from before an upgrade is restored as printed, and upgraded again', { skip }, async (t) => {
  const url = await createPostgresDatabase(t);
  const [former, present] = [Object.fromEntries(Object.entries(migrations).slice(0, -1)), migrations];
  const cwd = t.testdir();
  const { hostname, port, username, password, pathname } = new URL(url);
  const service = { host: hostname, port, user: username, password, dbname: pathname.slice(1) };
  const env = { ...process.env, PGSERVICEFILE: path.join(cwd, 'pg_service.conf') };
  const lines = Object.entries(service).filter(([, value]) => value !== '');
  writeFileSync(env.PGSERVICEFILE, ['[registry]', ...lines.map(([name, value]) => `${name}=${value}`), ''].join('\n'));
  mkdirSync(path.join(cwd, 'backup'));
  const shell = (lines: readonly string[]): void => {
    t.ok(lines.length > 0, 'the document contains the commands');
    for (const line of lines) execFileSync('sh', ['-c', line], { cwd, env, stdio: 'pipe' });
  };
  const revisionAfter = async (release: typeof migrations): Promise<unknown> => {
    const database = await openMigrated<RegistryTables>({ url }, release);
    const found = await database.selectFrom('revision').select('value').execute();
    await database.destroy();
    return found;
  };

  await revisionAfter(former);
  shell([`psql service=registry --command="insert into revision values (1, 7, 'a generation')"`]);
  shell(printed('3. Back up', 'pg_dump').filter((line) => line.includes('service=registry')));
  t.same(await revisionAfter(present), [{ value: 7 }]);
  shell(printed('The registry alone, in place', 'psql', 'pg_restore'));
  t.same(await revisionAfter(former), [{ value: 7 }], 'the previous release starts');
  t.same(await revisionAfter(present), [{ value: 7 }], 'this release starts');
});
