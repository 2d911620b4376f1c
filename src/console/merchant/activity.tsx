import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { Link } from 'wouter';
import { call, type Me, type Merchant, type Refused, type UsageRow } from '../api';
import { Problem, Table, Text, Time } from '../elements';
import { Pager, TextFilter, useFilters } from '../fields';
import { may } from '../frame';
import { texts } from '../texts';
import { UsageChart } from './usage-chart';

const number = new Intl.NumberFormat();
/** Formats for a day (in UTC, like the counts) and for an hour (in the reader's time zone). */
const formats = {
  day: new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeZone: 'UTC' }),
  hour: new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' }),
} as const;
const everyMilliseconds = 5_000;

const periods = { hour: { unit: 3_600_000, count: 48 }, day: { unit: 86_400_000, count: 30 } } as const;
const filters = ['code', 'key', 'address', 'requestId'] as const;

/** Shows a merchant's requests as the gateways counted them, and the refused requests with their reasons. */
export function ActivityPage({ merchant, me }: { readonly merchant: Merchant; readonly me: Me }): ReactNode {
  const { page, given, query, isFiltered, set, clear } = useFilters(filters);
  const refusals = useQuery({
    queryKey: ['refusals', merchant.id, page, given],
    queryFn: ({ signal }) =>
      call<readonly Refused[]>(`/merchants/${merchant.id}/refusals`, {
        query: { page, per_page: 50, ...query },
        signal,
      }),
    placeholderData: keepPreviousData,
    refetchInterval: everyMilliseconds,
  });
  return (
    <>
      <h1>{texts.activity.title}</h1>
      <Requests merchant={merchant} me={me} of={given.key} />
      <h2>{texts.activity.refusals}</h2>
      <div className="filters">
        {filters.map((name) => (
          <TextFilter
            key={name}
            label={texts.activity.filters[name]}
            value={given[name]}
            onChange={(value) => set(name, value)}
          />
        ))}
      </div>
      <Problem error={refusals.error} roles={me.roles.join(', ')} />
      {refusals.data === undefined ? null : refusals.data.meta?.total_records === 0 ? (
        <p className="empty">
          {isFiltered ? texts.activity.noMatch : texts.activity.noRefusals}{' '}
          {isFiltered ? (
            <button type="button" onClick={clear}>
              {texts.clearFilters}
            </button>
          ) : null}
        </p>
      ) : (
        <Table caption={texts.activity.refusals} columns={texts.activity.refusalColumns}>
          {refusals.data.data.map((one) => (
            <RefusalRow key={one.id} of={one} merchantId={merchant.id} mayAllow={may(me, 'allowlists:write')} />
          ))}
        </Table>
      )}
      <Pager meta={refusals.data?.meta} />
    </>
  );
}

/**
 * Shows the accepted and refused requests per hour or day: as a chart, and as a table that also has the counts by code.
 */
function Requests({ merchant, me, of }: { readonly merchant: Merchant; readonly me: Me; readonly of: string }) {
  const [by, setBy] = useState<'hour' | 'day'>('day');
  const [environment, setEnvironment] = useState('');
  const words = texts.activity;
  const { unit, count } = periods[by];
  const usage = useQuery({
    queryKey: ['usage', merchant.id, by, environment, of],
    queryFn: ({ signal }) => {
      const since = new Date(Date.now() - (count - 1) * unit).toISOString();
      const query = { by, since, per_page: 100, environment: environment || undefined, key: of || undefined };
      return call<readonly UsageRow[]>(`/merchants/${merchant.id}/usage`, { query, signal });
    },
    placeholderData: keepPreviousData,
    refetchInterval: everyMilliseconds,
  });
  const rows = usage.data?.data ?? [];
  return (
    <>
      <h2>{words.usage[by]}</h2>
      <div className="filters">
        <label>
          {words.by}{' '}
          <select value={by} onChange={({ currentTarget }) => setBy(currentTarget.value === 'hour' ? 'hour' : 'day')}>
            <option value="day">{words.periods.day}</option>
            <option value="hour">{words.periods.hour}</option>
          </select>
        </label>
        <label>
          {texts.keys.filters.environment}{' '}
          <select value={environment} onChange={({ currentTarget }) => setEnvironment(currentTarget.value)}>
            <option value="">{texts.keys.filters.all}</option>
            <option value="live">{texts.environment.live}</option>
            <option value="test">{texts.environment.test}</option>
          </select>
        </label>
      </div>
      <Problem error={usage.error} roles={me.roles.join(', ')} />
      {usage.data !== undefined && rows.length === 0 ? (
        <p className="empty">
          {words.noRequests} <Link href={`/merchants/${merchant.id}/try`}>{words.tryIt}</Link>
        </p>
      ) : null}
      {rows.length === 0 ? null : (
        <>
          <UsageChart {...{ rows, unit, count }} label={words.usage[by]} />
          <Table caption={words.usage[by]} columns={[words.units[by], ...words.columns]}>
            {rows.map(({ from, accepted, refused, codes }) => (
              <tr key={from}>
                <th scope="row">
                  {from === null ? '' : <span title={`${from} (UTC)`}>{formats[by].format(new Date(from))}</span>}
                </th>
                <td>{number.format(accepted)}</td>
                <td>{number.format(refused)}</td>
                <td>{codes.map(({ code, requests }) => `${code} ${number.format(requests)}`).join(', ')}</td>
              </tr>
            ))}
          </Table>
        </>
      )}
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
