import { keepPreviousData, useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { useSearchParams } from 'wouter';
import { call, type RegistryEvent } from '../api';
import { Change, Pager, Problem, Table, Text, Time } from '../elements';
import { texts } from '../texts';

/** Who changed what, and when. */
export function EventsPage(): ReactNode {
  const [parameters, setParameters] = useSearchParams();
  const page = Number(parameters.get('page') ?? 1);
  const { data, error } = useQuery({
    queryKey: ['events', page],
    queryFn: ({ signal }) => call<readonly RegistryEvent[]>('/events', { query: { page, per_page: 50 }, signal }),
    placeholderData: keepPreviousData,
  });
  return (
    <>
      <h1>{texts.events.title}</h1>
      <Problem error={error} />
      {data === undefined ? null : data.data.length === 0 ? (
        <p className="empty">{texts.events.noEvents}</p>
      ) : (
        <Table caption={texts.events.title} columns={texts.events.columns}>
          {data.data.map(({ seq, at, actor, action, merchantId, keyId, source, reason, before, after }) => (
            <tr key={seq}>
              <td>
                <Time at={at} />
              </td>
              <td>
                <Text>{actor}</Text>
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
      <Pager page={page} pages={data?.meta?.total_pages ?? 1} onPage={(to) => setParameters({ page: String(to) })} />
    </>
  );
}
