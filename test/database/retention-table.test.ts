import { readFileSync } from 'node:fs';
import t, { type Test } from 'tap';
import { openRegistryDatabase } from '../../src/registry/registry-database.js';
import { openServicesDatabase } from '../../src/services/services-database.js';
import { onEachDatabase } from './each-database.js';

/** The rows of the table under `Retention`: which database, which table, and what bounds it. */
const rows = (/\n## Retention\n([^]*?)\n## /.exec(readFileSync('docs/operations.md', 'utf8'))?.[1] ?? '')
  .split('\n')
  .flatMap((line) => {
    const [, database = '', table = '', bound = ''] = /^\| (\w+) \| `(\w+)` \| (.+) \|$/.exec(line) ?? [];
    return table === '' ? [] : [{ database, table, bound }];
  });

/** The tables that the document names for a part, with those of both, in their order. */
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
  // SQLite's own counter of AUTOINCREMENT columns has a row for each of them.
  return tables
    .map(({ name }) => name)
    .filter((name) => !name.startsWith('sqlite_'))
    .toSorted();
}

onEachDatabase('the operations document says of each table of the registry what bounds it', async (t, url) => {
  t.same(documented('registry'), await tablesOf(t, await openRegistryDatabase({ url, generation: 'g' })));
});

onEachDatabase('the operations document says of each table of the services what bounds it', async (t, url) => {
  t.same(documented('services'), await tablesOf(t, await openServicesDatabase({ url })));
});

t.test('each row says something', (t) => {
  t.ok(rows.length > 10);
  for (const { table, bound } of rows) t.ok(bound.trim().length > 6, table);
  t.end();
});
