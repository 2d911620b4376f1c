import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { Link } from 'wouter';
import { call } from '../api';
import { ChangeProblem, useRowChange } from '../change';
import { Problem, Table, Text, Time } from '../elements';
import { Pager, usePage } from '../fields';
import { may, useMe } from '../frame';
import { RevokeKey } from '../merchant/key-dialogs';
import { texts } from '../texts';

interface Finding {
  readonly id: string;
  readonly foundAt: string;
  readonly message: string;
  readonly merchantId: string;
  readonly keyId: string;
}

/** Lists the open findings of unusual key use: those without a decision, or with the decision `look` (investigate). */
export function UnusualPage(): ReactNode {
  const { me } = useMe();
  const client = useQueryClient();
  const { sent, send, retry } = useRowChange<string>((id, reason) =>
    call(`/unusual/${id}/answer`, { method: 'POST', body: { answer: 'fine' }, reason }),
  );
  // The finding whose key the person is about to revoke. A reload can move the rows under the pointer, and a revocation
  // cannot be undone, so the page asks first.
  const [revoked, setRevoked] = useState<Finding | null>(null);
  const page = usePage();
  const { data, error } = useQuery({
    queryKey: ['unusual', page],
    queryFn: ({ signal }) =>
      call<readonly Finding[]>('/unusual', { query: { status: 'open', page, per_page: 50 }, signal }),
    placeholderData: keepPreviousData,
  });
  const words = texts.unusual;
  const mayDecide = me !== undefined && may(me, 'unusual:answer');
  const mayRevoke = mayDecide && may(me, 'keys:revoke');
  return (
    <>
      <h1>{words.title}</h1>
      <Problem error={error} roles={me?.roles.join(', ') ?? ''} />
      {me === undefined ? null : <ChangeProblem {...{ sent, me }} onRetry={retry} />}
      {data === undefined ? null : data.meta?.total_records === 0 ? (
        <p className="empty">{words.noFindings}</p>
      ) : (
        <Table caption={words.title} columns={words.columns}>
          {data.data.map((finding) => (
            <tr key={finding.id}>
              <td>
                <Time at={finding.foundAt} />
              </td>
              <td>
                <Text>{finding.message}</Text>
              </td>
              <td>
                <Link href={`/merchants/${finding.merchantId}/keys`}>{finding.merchantId}</Link>
              </td>
              <td>
                <Link href={`/merchants/${finding.merchantId}/activity?key=${finding.keyId}`}>{finding.keyId}</Link>
              </td>
              <td className="actions">
                {mayDecide ? (
                  <button type="button" disabled={sent.isBusy} onClick={() => send(finding.id)}>
                    {words.fine}
                  </button>
                ) : null}
                {mayRevoke ? (
                  <button type="button" disabled={sent.isBusy} onClick={() => setRevoked(finding)}>
                    {words.revoked}
                  </button>
                ) : null}
              </td>
            </tr>
          ))}
        </Table>
      )}
      <Pager meta={data?.meta} />
      {revoked === null || me === undefined ? null : (
        <RevokeKey
          {...{ keyId: revoked.keyId, name: revoked.keyId, me }}
          revoke={(reason) =>
            call(`/unusual/${revoked.id}/answer`, { method: 'POST', body: { answer: 'revoked' }, reason })
          }
          onClose={() => {
            setRevoked(null);
            void client.invalidateQueries();
          }}
        />
      )}
    </>
  );
}
