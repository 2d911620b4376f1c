import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import t from 'tap';
import { openMigrated } from '../../src/database/open-migrated.js';
import { migrations } from '../../src/registry/migrations/migrations.js';
import type { RegistryTables } from '../../src/registry/tables.js';
import { createPostgresDatabase, postgresAlone } from './each-database.js';

const hasClient = ['psql', 'pg_dump', 'pg_restore'].every((name) => spawnSync(name, ['--version']).status === 0);
const skip = hasClient ? postgresAlone.skip : 'no PostgreSQL client: THE PRINTED RESTORE IS NOT TESTED';

/** The lines of the document that begin with this command. */
function printed(command: string): string[] {
  return readFileSync('docs/operations.md', 'utf8')
    .split('\n')
    .filter((line) => line.startsWith(`${command} `));
}

// `pg_restore --clean` left the tables of the later release, at which the next upgrade failed.
t.test('a backup from before an upgrade is restored as printed, and upgraded again', { skip }, async (t) => {
  const url = await createPostgresDatabase(t);
  const [former, present] = [Object.fromEntries(Object.entries(migrations).slice(0, -1)), migrations];
  const cwd = t.testdir();
  const env = { ...process.env, REGISTRY_DATABASE_URL: url };
  const shell = (lines: readonly string[]): void => {
    t.ok(lines.length > 0, 'the document prints it');
    for (const line of lines) execFileSync('sh', ['-c', line], { cwd, env, stdio: 'pipe' });
  };
  const revisionAfter = async (release: typeof migrations): Promise<unknown> => {
    const database = await openMigrated<RegistryTables>({ url }, release);
    const found = await database.selectFrom('revision').select('value').execute();
    await database.destroy();
    return found;
  };

  await revisionAfter(former);
  shell([`psql "$REGISTRY_DATABASE_URL" --command="insert into revision values (1, 7, 'a generation')"`]);
  shell(printed('pg_dump'));
  t.same(await revisionAfter(present), [{ value: 7 }]);
  shell([...printed('psql'), ...printed('pg_restore')]);
  t.same(await revisionAfter(former), [{ value: 7 }], 'the former release starts');
  t.same(await revisionAfter(present), [{ value: 7 }], 'and so does this one');
});
