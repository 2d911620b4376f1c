import { keepPreviousData, useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { call, type RegistryEvent } from '../api';
import { Change, Problem, Table, Text, Time } from '../elements';
import { Pager, TextFilter, useFilters } from '../fields';
import { may, useMe } from '../frame';
import { texts } from '../texts';
import { Chain } from './chain';

const filters = ['merchantId', 'keyId', 'actor', 'requestId'] as const;

/** Lists the events of the audit trail: who changed what, and when. */
export function EventsPage(): ReactNode {
  const { me } = useMe();
  const { page, given, query, isFiltered, set, clear } = useFilters(filters);
  const { data, error } = useQuery({
    queryKey: ['events', page, given],
    queryFn: ({ signal }) =>
      call<readonly RegistryEvent[]>('/events', { query: { page, per_page: 50, ...query }, signal }),
    placeholderData: keepPreviousData,
  });
  return (
    <>
      <h1>{texts.events.title}</h1>
      {me?.merchantId === null && may(me, 'events:read') ? <Chain /> : null}
      <div className="filters">
        {filters
          .filter((name) => name !== 'merchantId' || me?.merchantId === null)
          .map((name) => (
            <TextFilter
              key={name}
              label={texts.events.filters[name]}
              value={given[name]}
              onChange={(value) => set(name, value)}
            />
          ))}
      </div>
      <Problem error={error} />
      {data === undefined ? null : data.meta?.total_records === 0 ? (
        <p className="empty">
          {isFiltered ? texts.events.noMatch : texts.events.noEvents}{' '}
          {isFiltered ? (
            <button type="button" onClick={clear}>
              {texts.clearFilters}
            </button>
          ) : null}
        </p>
      ) : (
        <Table caption={texts.events.title} columns={texts.events.columns}>
          {data.data.map(({ seq, at, actor, action, merchantId, keyId, source, reason, before, after, proof }) => (
            <tr key={seq}>
              <td>
                <Time at={at} />
              </td>
              <td>
                <Text>{actor}</Text>
                <br />
                <small>{proof ?? ''}</small>
              </td>
              <td>
                {action}
                <Change before={before} after={after} />
              </td>
              <td>{merchantId}</td>
              <td>{keyId ?? ''}</td>
              <td>{source ?? ''}</td>
              <td>
                <Text>{reason ?? ''}</Text>
              </td>
            </tr>
          ))}
        </Table>
      )}
      <Pager meta={data?.meta} />
    </>
  );
}
