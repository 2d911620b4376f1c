import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import Libsql from 'libsql';
import t, { type Test } from 'tap';
import { openServicesDatabase } from '../../src/services/services-database.js';
import { ran } from '../cli/ran.js';

const owner = { merchant_id: 'm', environment: 'live', created_at: 1 } as const;

/**
 * Creates a database of the services, and a configuration file that names it. `command` of the result runs a `database`
 * command with this configuration.
 */
async function withServices(t: Test) {
  const folder = t.testdir();
  const file = (name: string): string => `${folder}/${name}`;
  const database = await openServicesDatabase({ url: `sqlite:${file('services.db')}` });
  t.teardown(() => database.destroy());
  const configure = (url: string): void => {
    writeFileSync(file('gateway.yaml'), `services: { database: { url: "${url}" } }\n`);
  };
  configure(`sqlite:${file('services.db')}`);
  const command = (...args: string[]) => ran('database', ...args, '--config', file('gateway.yaml'));
  const addWallet = (id: string) =>
    database.insertInto('wallets').values({ ...owner, id, currency: 'NGN', balance: 0, is_default: 0 });
  return { addWallet, command, configure, database, file, folder };
}

t.test('a backup made during writes is consistent, and readable only by its owner', async (t) => {
  const { addWallet, command, database, file, folder } = await withServices(t);
  await addWallet('kept').execute();
  const backup = file('backup.db');
  await database.transaction().execute(async (transaction) => {
    await transaction
      .insertInto('wallets')
      .values({ ...owner, id: 'not committed', currency: 'NGN', balance: 0, is_default: 0 })
      .execute();
    t.match(await command('backup', 'services', '--to', backup), { status: 0, err: '' });
  });
  t.equal(statSync(backup).mode & 0o777, 0o600);
  const copy = new Libsql(backup);
  t.same(copy.prepare('select id from wallets').all(), [{ id: 'kept' }]);
  t.same(copy.pragma('integrity_check'), [{ integrity_check: 'ok' }]);
  copy.close();
  t.same(
    readdirSync(folder).filter((name) => name.includes('partial')),
    [],
  );
  const restored = await openServicesDatabase({ url: `sqlite:${backup}` });
  await restored
    .insertInto('wallets')
    .values({ ...owner, id: 'x', currency: 'NGN', balance: 0, is_default: 0 })
    .execute();
  await restored.destroy();
});

t.test('an invalid backup target is rejected, and no file is replaced or created', async (t) => {
  const { command, configure, file, folder } = await withServices(t);
  writeFileSync(file('kept.db'), 'a backup');
  t.match(await command('backup', 'services', '--to', file('kept.db')), {
    status: 1,
    err: /kept\.db already exists and was not changed: name a file that does not exist\.\n$/,
  });
  t.equal(readFileSync(file('kept.db'), 'utf8'), 'a backup');
  t.match(await command('backup', 'services', '--to', file('none/b.db')), { status: 1, err: /none.*create it first/ });
  t.match(await command('backup', 'services'), { status: 2, err: /--to <file>/ });
  t.match(await command('backup', 'gateway', '--to', file('b.db')), { status: 2, err: /registry, services/ });

  const before = readdirSync(folder);
  configure(`sqlite:${file('absent.db')}`);
  t.match(await command('backup', 'services', '--to', file('b.db')), {
    status: 1,
    err: /There is no database .*absent/,
  });
  configure(`sqlite:${folder}`);
  t.match(await command('backup', 'services', '--to', file('b.db')), {
    status: 1,
    err: /is a directory: check the configuration\.\n$/,
  });
  configure(`sqlite:${file('kept.db')}`);
  t.match(await command('backup', 'services', '--to', file('b.db')), {
    status: 1,
    err: /kept\.db could not be copied to .*b\.db: .*not a database\.\n$/,
  });
  configure('sqlite::memory:');
  t.match(await command('backup', 'services', '--to', file('b.db')), {
    status: 1,
    err: /is in memory and cannot be backed up/,
  });
  configure('postgres://u:secret@db.example/services');
  const refused = await command('backup', 'services', '--to', file('b.db'));
  t.match(refused, { status: 1, err: /pg_dump/ });
  t.notMatch(refused.err, 'secret');
  t.same(readdirSync(folder), before);
});
