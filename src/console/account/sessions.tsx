import { useQuery, useQueryClient } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { call, type ConsoleSession } from '../api';
import { Problem, Table, Text, Time } from '../elements';
import { texts } from '../texts';

/** Lists the open sessions of the signed-in person, or of the administrator with the id `of`. */
export function SessionsPage({ of = null }: { readonly of?: string | null }): ReactNode {
  const client = useQueryClient();
  const { data, error } = useQuery({
    queryKey: ['sessions', of],
    queryFn: async ({ signal }) => {
      const query = { per_page: 100, ...(of === null ? {} : { administratorId: of }) };
      return (await call<readonly ConsoleSession[]>('/sessions', { query, signal })).data;
    },
  });
  const title = of === null ? texts.sessions.title : texts.sessions.titleOf(of);
  const end = async (id: string): Promise<void> => {
    // Ignore an error, because the session may have ended already. The reloaded list shows which sessions are still
    // open.
    await call(`/sessions/${id}`, { method: 'DELETE' }).catch(() => undefined);
    await client.invalidateQueries();
  };
  return (
    <>
      <h1>{title}</h1>
      <Problem error={error} />
      <Table caption={title} columns={texts.sessions.columns}>
        {(data ?? []).map(({ id, createdAt, lastSeenAt, expiresAt, source, browser, isCurrent }) => (
          <tr key={id}>
            <td>
              <Time at={createdAt} />
            </td>
            <td>
              <Time at={lastSeenAt} />
            </td>
            <td>
              <Time at={expiresAt} />
            </td>
            <td>{source}</td>
            <td>
              <Text>{browser}</Text>
            </td>
            <td className="actions">
              {isCurrent ? (
                texts.sessions.current
              ) : (
                <button type="button" onClick={() => void end(id)}>
                  {texts.sessions.end}
                </button>
              )}
            </td>
          </tr>
        ))}
      </Table>
    </>
  );
}
