import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { call } from '../api';
import { CommandLine, Problem, Table, Text, Time } from '../elements';
import { texts } from '../texts';

interface Gateway {
  readonly instanceId: string;
  readonly host: string;
  readonly environment: 'live' | 'test';
  readonly startedAt: string | null;
  readonly revision: number | null;
  readonly version: string | null;
  readonly lastSeenAt: string;
  readonly confirms: boolean;
  readonly clockSkewMilliseconds: number | null;
}

const number = new Intl.NumberFormat();
const everyMilliseconds = 5_000;

/** Lists the gateways that may use cached records, each with the newest change (revision) that it has confirmed. */
export function GatewaysPage(): ReactNode {
  const { data, error } = useQuery({
    queryKey: ['gateways'],
    queryFn: async ({ signal }) => (await call<readonly Gateway[]>('/gateways', { signal })).data,
    refetchInterval: everyMilliseconds,
  });
  return (
    <>
      <h1>{texts.gateways.title}</h1>
      <Problem error={error} />
      {data === undefined ? null : data.length === 0 ? (
        <>
          <p className="empty">{texts.gateways.noGateways}</p>
          <CommandLine>{texts.gateways.command}</CommandLine>
        </>
      ) : (
        <Table caption={texts.gateways.title} columns={texts.gateways.columns}>
          {data.map(({ instanceId, host, environment, version, startedAt, lastSeenAt, revision, confirms, ...one }) => (
            <tr key={instanceId}>
              <th scope="row">
                <Text>{host}</Text>
              </th>
              <td>{texts.environment[environment]}</td>
              <td>{version ?? texts.unknown}</td>
              <td>{startedAt === null ? texts.unknown : <Time at={startedAt} />}</td>
              <td>
                <Time at={lastSeenAt} />
              </td>
              <td>{confirms ? (revision ?? texts.unknown) : texts.gateways.cannotConfirm}</td>
              <td>
                {one.clockSkewMilliseconds === null
                  ? texts.unknown
                  : texts.gateways[one.clockSkewMilliseconds < 0 ? 'behind' : 'ahead'](
                      number.format(Math.abs(one.clockSkewMilliseconds)),
                    )}
              </td>
            </tr>
          ))}
        </Table>
      )}
    </>
  );
}
