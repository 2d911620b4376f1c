import type { CompiledQuery, Kysely } from '../../src/database/kysely.js';
import Libsql from 'libsql';

/** Runs something on the database of an SQLite file, and tells how each of its queries finds its rows. */
export async function queryPlans<Tables>(
  { database, file }: { readonly database: Kysely<Tables>; readonly file: string },
  act: (watched: Kysely<Tables>) => Promise<unknown>,
): Promise<string[]> {
  // Parts of a query are seen too, but those are not run by themselves.
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
  // On a connection of its own: libsql leaves such a statement open, and the database could not be closed.
  const connection = new Libsql(file);
  const plans = run.map((query) => {
    const rows = connection.prepare(`explain query plan ${query?.sql ?? ''}`).all() as { detail: string }[];
    return rows.map(({ detail }) => detail).join('\n');
  });
  connection.close();
  return plans;
}
