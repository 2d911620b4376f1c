import { chmodSync, statSync, readdirSync } from 'node:fs';
import { sql } from '../../src/database/kysely.js';
import t from 'tap';
import { openDatabase } from '../../src/database/open-database.js';

// Customers, payouts and merchants could be read by every user of the machine.
t.test('an SQLite database that is created can be read by its own user alone, with what lies beside it', async (t) => {
  const directory = t.testdir();
  const file = `${directory}/registry.db`;
  const modes = (): number[] => readdirSync(directory).map((name) => statSync(`${directory}/${name}`).mode & 0o777);
  const create = async (): Promise<number[]> => {
    const database = openDatabase({ url: `sqlite:${file}` });
    await sql`create table if not exists payouts (id text)`.execute(database);
    const all = modes();
    await database.destroy();
    return all;
  };
  const before = process.umask(0o022);
  t.teardown(() => process.umask(before));
  const created = await create();
  t.ok(created.length > 1, 'there are files beside it');
  t.same(new Set(created), new Set([0o600]));
  chmodSync(file, 0o640);
  await create();
  t.equal(statSync(file).mode & 0o777, 0o640, 'what an operator chose stays');
});
