import { readFileSync } from 'node:fs';
import t, { type Test } from 'tap';
import { openRegistryDatabase } from '../../src/registry/registry-database.js';
import { openServicesDatabase } from '../../src/services/services-database.js';
import { onEachDatabase } from './each-database.js';

/** The rows of the table under `Retention`: database, table and bound. */
const rows = (/\n## Retention\n([^]*?)\n## /.exec(readFileSync('docs/operations.md', 'utf8'))?.[1] ?? '')
  .split('\n')
  .flatMap((line) => {
    const [, database = '', table = '', bound = ''] = /^\| (\w+) \| `(\w+)` \| (.+) \|$/.exec(line) ?? [];
    return table === '' ? [] : [{ database, table, bound }];
  });

/** The documented tables of the registry or the services, sorted. They include the tables that both have. */
function documented(part: string): string[] {
  return rows
    .filter(({ database }) => database === part || database === 'both')
    .map(({ table }) => table)
    .toSorted();
}

interface Opened {
  readonly introspection: { getTables(options: { withInternalKyselyTables: true }): Promise<{ name: string }[]> };
  destroy(): Promise<void>;
}

async function tablesOf(t: Test, database: Opened): Promise<string[]> {
  t.teardown(() => database.destroy());
  const tables = await database.introspection.getTables({ withInternalKyselyTables: true });
  // Without SQLite's own table of AUTOINCREMENT counters, which has one row for each counter.
  return tables
    .map(({ name }) => name)
    .filter((name) => !name.startsWith('sqlite_'))
    .toSorted();
}

onEachDatabase('docs/operations.md states the bound of each table of the registry', async (t, url) => {
  t.same(documented('registry'), await tablesOf(t, await openRegistryDatabase({ url, generation: 'g' })));
});

onEachDatabase('docs/operations.md states the bound of each table of the services', async (t, url) => {
  t.same(documented('services'), await tablesOf(t, await openServicesDatabase({ url })));
});

t.test('each row states a bound', (t) => {
  t.ok(rows.length > 10);
  for (const { table, bound } of rows) t.ok(bound.trim().length > 6, table);
  t.end();
});
