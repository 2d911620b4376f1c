import { readFileSync } from 'node:fs';
import Libsql from 'libsql';
import pg from 'pg';
import type { Test } from 'tap';

/**
 * Returns a function that counts the committed write transactions of a migrated database. The count matters because
 * each commit flushes to the disk.
 */
export function countCommits(t: Test, url: string): Promise<() => Promise<number>> {
  return url.startsWith('sqlite:') ? countInSqlite(t, url.slice('sqlite:'.length)) : countInPostgres(t, url);
}

const [headerBytes, frameHeaderBytes, pageSizeAt, saltsAt] = [32, 24, 8, 16];

/**
 * Resolves with a function that counts the commit frames in the write-ahead log. These are the frames whose field for
 * the database size is not 0.
 */
function countInSqlite(t: Test, path: string): Promise<() => Promise<number>> {
  // An open read transaction keeps the write-ahead log from being restarted.
  const reader = new Libsql(path);
  t.teardown(() => reader.close());
  reader.exec('begin; select count(*) from projector');
  const count = (): number => {
    const log = readFileSync(`${path}-wal`);
    const frameBytes = frameHeaderBytes + log.readUInt32BE(pageSizeAt);
    const salts = log.subarray(saltsAt, saltsAt + 8);
    let commits = 0;
    for (let at = headerBytes; at + frameBytes <= log.length; at += frameBytes) {
      if (!log.subarray(at + 8, at + 16).equals(salts)) break;
      if (log.readUInt32BE(at + 4) > 0) commits += 1;
    }
    return commits;
  };
  return Promise.resolve(() => Promise.resolve(count()));
}

/**
 * Adds a trigger to every table, which records the id of each transaction that writes. Resolves with a function that
 * counts the recorded ids.
 */
async function countInPostgres(t: Test, url: string): Promise<() => Promise<number>> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => undefined);
  await client.connect();
  t.teardown(() => client.end());
  await client.query(`
    create table test_writers (id bigint primary key);
    create function test_note() returns trigger language plpgsql as
      $$ begin insert into test_writers values (txid_current()) on conflict do nothing; return null; end $$;
    do $$ declare name text; begin
      for name in select tablename from pg_tables where schemaname = 'public' and tablename <> 'test_writers' loop
        execute format('create trigger test_note after insert or update or delete on %I for each row execute function test_note()', name);
      end loop;
    end $$`);
  return async () => {
    const { rows } = await client.query<{ count: number }>('select count(*)::int as count from test_writers');
    return rows[0]?.count ?? 0;
  };
}
