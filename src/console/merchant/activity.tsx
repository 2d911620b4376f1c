import { keepPreviousData, useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Link, useSearchParams } from 'wouter';
import { call, type Me, type Merchant, type Refused, type UsageRow } from '../api';
import { Pager, Problem, Table, Text, Time } from '../elements';
import { may } from '../frame';
import { texts } from '../texts';

const number = new Intl.NumberFormat();
const day = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeZone: 'UTC' });
const everyMilliseconds = 5_000;

/** What the gateways have seen of a merchant's requests, and why some were refused. */
export function ActivityPage({ merchant, me }: { readonly merchant: Merchant; readonly me: Me }): ReactNode {
  const [parameters, setParameters] = useSearchParams();
  const page = Number(parameters.get('page') ?? 1);
  const usage = useQuery({
    queryKey: ['usage', merchant.id],
    queryFn: ({ signal }) =>
      call<readonly UsageRow[]>(`/merchants/${merchant.id}/usage`, { query: { by: 'day', per_page: 31 }, signal }),
    refetchInterval: everyMilliseconds,
  });
  const refusals = useQuery({
    queryKey: ['refusals', merchant.id, page],
    queryFn: ({ signal }) =>
      call<readonly Refused[]>(`/merchants/${merchant.id}/refusals`, { query: { page, per_page: 50 }, signal }),
    placeholderData: keepPreviousData,
    refetchInterval: everyMilliseconds,
  });
  const days = usage.data?.data ?? [];
  const most = Math.max(1, ...days.map(({ requests }) => requests));
  return (
    <>
      <h1>{texts.activity.title}</h1>
      <h2>{texts.activity.usage}</h2>
      <Problem error={usage.error} roles={me.roles.join(', ')} />
      {usage.data !== undefined && days.length === 0 ? <p className="empty">{texts.activity.noRequests}</p> : null}
      {days.length === 0 ? null : (
        <Table caption={texts.activity.usage} columns={texts.activity.columns}>
          {days.map(({ from, accepted, refused, codes }) => (
            <tr key={from}>
              <th scope="row">{from === null ? '' : day.format(new Date(from))}</th>
              <td>
                {number.format(accepted)}
                <span className="bar good" aria-hidden="true" style={{ inlineSize: `${(accepted / most) * 100}%` }} />
              </td>
              <td>
                {number.format(refused)}
                <span className="bar ended" aria-hidden="true" style={{ inlineSize: `${(refused / most) * 100}%` }} />
              </td>
              <td>{codes.map(({ code, requests }) => `${code} ${number.format(requests)}`).join(', ')}</td>
            </tr>
          ))}
        </Table>
      )}
      <h2>{texts.activity.refusals}</h2>
      <Problem error={refusals.error} roles={me.roles.join(', ')} />
      {refusals.data === undefined ? null : refusals.data.data.length === 0 ? (
        <p className="empty">{texts.activity.noRefusals}</p>
      ) : (
        <Table caption={texts.activity.refusals} columns={texts.activity.refusalColumns}>
          {refusals.data.data.map((one) => (
            <RefusalRow key={one.id} of={one} merchantId={merchant.id} mayAllow={may(me, 'allowlists:write')} />
          ))}
        </Table>
      )}
      <Pager
        page={page}
        pages={refusals.data?.meta?.total_pages ?? 1}
        onPage={(to) => setParameters({ page: String(to) })}
      />
    </>
  );
}

function RefusalRow({
  of: { at, code, status, message, remedy, method, path, address, keyId, requestId },
  merchantId,
  mayAllow,
}: {
  readonly of: Refused;
  readonly merchantId: string;
  readonly mayAllow: boolean;
}): ReactNode {
  return (
    <tr>
      <td>
        <Time at={at} />
      </td>
      <td>
        {message ?? code}
        <br />
        <small>
          {status} {code}
        </small>
      </td>
      <td>
        {remedy ?? ''}
        {code === 'ip_not_allowed' && address !== null && mayAllow ? (
          <>
            {' '}
            <Link href={`/merchants/${merchantId}/allowlists?add=${encodeURIComponent(address)}`}>
              {texts.activity.addAddress(address)}
            </Link>
          </>
        ) : null}
      </td>
      <td>
        <Text>{`${method} ${path}`}</Text>
      </td>
      <td>{address ?? texts.unknown}</td>
      <td>{keyId ?? ''}</td>
      <td>
        <code>{requestId}</code>
      </td>
    </tr>
  );
}
