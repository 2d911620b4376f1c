import { useQuery, useQueryClient } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { call } from '../api';
import { Change, Problem, Table, Text, Time } from '../elements';
import { may, useMe } from '../frame';
import { texts } from '../texts';

interface Approval {
  readonly id: string;
  readonly change: string;
  readonly merchantId: string;
  readonly before: object | null;
  readonly after: object | null;
  readonly requester: string;
  readonly reason: string | null;
  readonly requestedAt: string;
  readonly expiresAt: string;
}

/** Lists changes that wait for the approval of another administrator. */
export function ApprovalsPage(): ReactNode {
  const { me } = useMe();
  const client = useQueryClient();
  const [problem, setProblem] = useState<unknown>(null);
  const { data, error } = useQuery({
    queryKey: ['approvals'],
    queryFn: async ({ signal }) =>
      (await call<readonly Approval[]>('/approvals', { query: { status: 'WAITING', per_page: 100 }, signal })).data,
  });
  const decide = async (id: string, decision: 'approve' | 'reject'): Promise<void> => {
    setProblem(null);
    await call(`/approvals/${id}/${decision}`, { method: 'POST' }).catch(setProblem);
    await client.invalidateQueries();
  };
  const roles = me?.roles.join(', ') ?? '';
  const words = texts.approvals;
  return (
    <>
      <h1>{words.title}</h1>
      <Problem error={error} roles={roles} />
      <Problem error={problem} roles={roles} />
      {data === undefined ? null : data.length === 0 ? (
        <p className="empty">{words.noApprovals}</p>
      ) : (
        <Table caption={words.title} columns={words.columns}>
          {data.map(({ id, change, merchantId, before, after, requester, reason, requestedAt, expiresAt }) => (
            <tr key={id}>
              <td>
                {change}
                <Change before={before} after={after} />
              </td>
              <td>{merchantId}</td>
              <td>
                <Text>{requester}</Text>
              </td>
              <td>
                <Text>{reason ?? ''}</Text>
              </td>
              <td>
                <Time at={requestedAt} />
              </td>
              <td>
                <Time at={expiresAt} />
              </td>
              <td className="actions">
                {me !== undefined && may(me, 'approvals:decide')
                  ? (['approve', 'reject'] as const).map((decision) => (
                      <button key={decision} type="button" onClick={() => void decide(id, decision)}>
                        {words[decision]}
                      </button>
                    ))
                  : null}
              </td>
            </tr>
          ))}
        </Table>
      )}
    </>
  );
}
