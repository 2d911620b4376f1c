import type { CompiledQuery, Kysely } from '../../src/database/kysely.js';
import Libsql from 'libsql';

/** Runs `act` on an SQLite database and returns the query plan of each executed query. */
export async function queryPlans<Tables>(
  { database, file }: { readonly database: Kysely<Tables>; readonly file: string },
  act: (watched: Kysely<Tables>) => Promise<unknown>,
): Promise<string[]> {
  // Kysely calls `transformQuery` for parts of queries, too. It calls `transformResult` only for executed queries.
  const seen = new Map<unknown, CompiledQuery>();
  const run: (CompiledQuery | undefined)[] = [];
  const executor = database.getExecutor();
  const watched = database.withPlugin({
    transformQuery: ({ node, queryId }) => {
      seen.set(queryId, executor.compileQuery(node, queryId));
      return node;
    },
    transformResult: ({ result, queryId }) => {
      run.push(seen.get(queryId));
      return Promise.resolve(result);
    },
  });
  await act(watched);
  // On a separate connection: libsql leaves the statement open, which would prevent closing the database.
  const connection = new Libsql(file);
  const plans = run.map((query) => {
    const rows = connection.prepare(`explain query plan ${query?.sql ?? ''}`).all() as { detail: string }[];
    return rows.map(({ detail }) => detail).join('\n');
  });
  connection.close();
  return plans;
}
