import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { Link, useSearchParams } from 'wouter';
import { call } from '../api';
import { Pager, Problem, Table, Text, Time } from '../elements';
import { may, useMe } from '../frame';
import { texts } from '../texts';

interface Finding {
  readonly id: string;
  readonly foundAt: string;
  readonly message: string;
  readonly merchantId: string;
  readonly keyId: string;
}

/** Lists the open findings of unusual key use: those for which no administrator has made a decision yet. */
export function UnusualPage(): ReactNode {
  const { me } = useMe();
  const client = useQueryClient();
  const [parameters, setParameters] = useSearchParams();
  const [problem, setProblem] = useState<unknown>(null);
  const page = Number(parameters.get('page') ?? 1);
  const { data, error } = useQuery({
    queryKey: ['unusual', page],
    queryFn: ({ signal }) =>
      call<readonly Finding[]>('/unusual', { query: { status: 'open', page, per_page: 50 }, signal }),
    placeholderData: keepPreviousData,
  });
  const decide = async (id: string, given: 'fine' | 'revoked'): Promise<void> => {
    setProblem(null);
    await call(`/unusual/${id}/answer`, { method: 'POST', body: { answer: given } }).catch(setProblem);
    await client.invalidateQueries();
  };
  const roles = me?.roles.join(', ') ?? '';
  const words = texts.unusual;
  const decisions = [
    ...(me !== undefined && may(me, 'unusual:answer') ? (['fine'] as const) : []),
    ...(me !== undefined && may(me, 'unusual:answer') && may(me, 'keys:revoke') ? (['revoked'] as const) : []),
  ];
  return (
    <>
      <h1>{words.title}</h1>
      <Problem error={error} roles={roles} />
      <Problem error={problem} roles={roles} />
      {data === undefined ? null : data.data.length === 0 ? (
        <p className="empty">{words.noFindings}</p>
      ) : (
        <Table caption={words.title} columns={words.columns}>
          {data.data.map(({ id, foundAt, message, merchantId, keyId }) => (
            <tr key={id}>
              <td>
                <Time at={foundAt} />
              </td>
              <td>
                <Text>{message}</Text>
              </td>
              <td>
                <Link href={`/merchants/${merchantId}/keys`}>{merchantId}</Link>
              </td>
              <td>
                <Link href={`/merchants/${merchantId}/activity?key=${keyId}`}>{keyId}</Link>
              </td>
              <td className="actions">
                {decisions.map((decision) => (
                  <button key={decision} type="button" onClick={() => void decide(id, decision)}>
                    {words[decision]}
                  </button>
                ))}
              </td>
            </tr>
          ))}
        </Table>
      )}
      <Pager page={page} pages={data?.meta?.total_pages ?? 1} onPage={(to) => setParameters({ page: String(to) })} />
    </>
  );
}
