import { keepPreviousData, useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { ApiProblem, call, type ConsoleSession } from '../api';
import { ChangeProblem, useRowChange } from '../change';
import { Problem, Table, Text, Time } from '../elements';
import { Pager, usePage } from '../fields';
import { useMe } from '../frame';
import { texts } from '../texts';

/** Lists the open sessions of the signed-in person, or of the administrator with the id `of`. */
export function SessionsPage({ of = null }: { readonly of?: string | null }): ReactNode {
  const { me } = useMe();
  const { sent, send, retry } = useRowChange<string>(async (id, reason) => {
    try {
      await call(`/sessions/${id}`, { method: 'DELETE', reason });
    } catch (problem) {
      // The session may have ended already. The reloaded list shows which sessions are still open.
      if (!(problem instanceof ApiProblem) || problem.status !== 404) throw problem;
    }
  });
  const page = usePage();
  const { data, error } = useQuery({
    queryKey: ['sessions', of, page],
    queryFn: ({ signal }) => {
      const query = { page, per_page: 50, ...(of === null ? {} : { administratorId: of }) };
      return call<readonly ConsoleSession[]>('/sessions', { query, signal });
    },
    placeholderData: keepPreviousData,
  });
  const title = of === null ? texts.sessions.title : texts.sessions.titleOf(of);
  return (
    <>
      <h1>{title}</h1>
      <Problem error={error} />
      {me === undefined ? null : <ChangeProblem {...{ sent, me }} onRetry={retry} />}
      <Table caption={title} columns={texts.sessions.columns}>
        {(data?.data ?? []).map(({ id, createdAt, lastSeenAt, expiresAt, source, browser, isCurrent }) => (
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
                <button type="button" disabled={sent.isBusy} onClick={() => send(id)}>
                  {texts.sessions.end}
                </button>
              )}
            </td>
          </tr>
        ))}
      </Table>
      <Pager meta={data?.meta} />
    </>
  );
}
