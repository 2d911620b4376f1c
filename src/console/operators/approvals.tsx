import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { call, type Me } from '../api';
import { ChangeProblem, FormDialog, useChange, useRowChange } from '../change';
import { Change, Problem, Table, Text, Time } from '../elements';
import { Pager, usePage } from '../fields';
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
  const { sent, send, retry } = useRowChange<string>((id, reason) =>
    call(`/approvals/${id}/reject`, { method: 'POST', reason }),
  );
  // The request that the person is about to approve. A reload can move the rows under the pointer, and nobody can take
  // an approval back, so the page asks first.
  const [approved, setApproved] = useState<Approval | null>(null);
  const page = usePage();
  const { data, error } = useQuery({
    queryKey: ['approvals', 'waiting', page],
    queryFn: ({ signal }) =>
      call<readonly Approval[]>('/approvals', { query: { status: 'WAITING', page, per_page: 50 }, signal }),
    placeholderData: keepPreviousData,
  });
  const words = texts.approvals;
  return (
    <>
      <h1>{words.title}</h1>
      <Problem error={error} roles={me?.roles.join(', ') ?? ''} />
      {me === undefined ? null : <ChangeProblem {...{ sent, me }} onRetry={retry} />}
      {data === undefined ? null : data.meta?.total_records === 0 ? (
        <p className="empty">{words.noApprovals}</p>
      ) : (
        <Table caption={words.title} columns={words.columns}>
          {data.data.map((approval) => (
            <tr key={approval.id}>
              <td>
                {approval.change}
                <Change before={approval.before} after={approval.after} />
              </td>
              <td>{approval.merchantId}</td>
              <td>
                <Text>{approval.requester}</Text>
              </td>
              <td>
                <Text>{approval.reason ?? ''}</Text>
              </td>
              <td>
                <Time at={approval.requestedAt} />
              </td>
              <td>
                <Time at={approval.expiresAt} />
              </td>
              <td className="actions">
                {me !== undefined && may(me, 'approvals:decide') ? (
                  <>
                    <button type="button" disabled={sent.isBusy} onClick={() => setApproved(approval)}>
                      {words.approve}
                    </button>
                    <button type="button" disabled={sent.isBusy} onClick={() => send(approval.id)}>
                      {words.reject}
                    </button>
                  </>
                ) : null}
              </td>
            </tr>
          ))}
        </Table>
      )}
      <Pager meta={data?.meta} />
      {approved === null || me === undefined ? null : (
        <Approve
          of={approved}
          me={me}
          onClose={() => {
            setApproved(null);
            void client.invalidateQueries();
          }}
        />
      )}
    </>
  );
}

/** Shows what would change, asks whether to approve it, and approves it. */
function Approve({
  of: { id, change, merchantId, before, after, requester, reason },
  me,
  onClose,
}: {
  readonly of: Approval;
  readonly me: Me;
  readonly onClose: () => void;
}): ReactNode {
  const sent = useChange<unknown>();
  const { approve: action, columns, question } = texts.approvals;
  const [changeName, merchantName, requesterName, reasonName] = columns;
  const approve = (): void =>
    sent.send((given) => call(`/approvals/${id}/approve`, { method: 'POST', reason: given }), onClose);
  return (
    <FormDialog title={question.title} action={action} {...{ me, sent, onClose }} onSend={approve}>
      <p>{question.text}</p>
      <dl>
        <dt>{changeName}</dt>
        <dd>{change}</dd>
        <dt>{merchantName}</dt>
        <dd>{merchantId || question.nothing}</dd>
        <dt>{requesterName}</dt>
        <dd>
          <Text>{requester}</Text>
        </dd>
        <dt>{reasonName}</dt>
        <dd>
          <Text>{reason ?? question.nothing}</Text>
        </dd>
        <dt>{question.before}</dt>
        <dd>
          <code>
            <Text>{before === null ? question.nothing : JSON.stringify(before)}</Text>
          </code>
        </dd>
        <dt>{question.after}</dt>
        <dd>
          <code>
            <Text>{JSON.stringify(after)}</Text>
          </code>
        </dd>
      </dl>
    </FormDialog>
  );
}
